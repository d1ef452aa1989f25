// Adds a crosshair with the values of a step to the charts, and a legend that hides series. The server has drawn the charts. The numbers
// are in the legend's items, and the texts in the table of numbers.
const space = "http://www.w3.org/2000/svg";
const storage = "charts-hidden";
// The title of the chart that shows a crosshair, and the crosshair's time. So it stays at its time after an update.
let shown;
// The title of the chart that has the focus, and the name or address of the focused element, because an update replaces the element.
let focus;
// The series that the visitor has hidden: title of the chart, line feed, name of the series.
const hidden = new Set(stored());

function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(storage) ?? "[]");
  } catch {
    return [];
  }
}

function element(name, className, text) {
  const one = document.createElement(name);
  if (className) one.className = className;
  if (text !== undefined) one.textContent = text;
  return one;
}

function drawn(name, attributes) {
  const one = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  return one;
}

// Returns the parts and numbers of a chart.
function chart(figure) {
  const data = figure.dataset;
  const title = data.chart;
  const series = [...figure.querySelectorAll(".legend li")].map((item, index) => {
    const name = item.querySelector(".name").textContent;
    const values = item.dataset.values.split(",").map((value) => (value === "" ? null : Number(value)));
    return { item, index, name, values, key: `${title}\n${name}`, swatch: item.querySelector(".swatch") };
  });
  return {
    figure, title, series,
    kind: data.kind,
    first: Number(data.first),
    step: Number(data.step),
    count: Number(data.count),
    top: Number(data.top),
    base: Number(data.base),
    steps: data.steps.split("|").map((text) => {
      const [size, divisor = 1, suffix = ""] = text.split("/");
      return { size: Number(size), divisor: Number(divisor), suffix };
    }),
    plot: figure.querySelector(".plot"),
    svg: figure.querySelector(".plot > svg"),
  };
}

function visible(one) {
  return one.series.filter(({ key }) => !hidden.has(key));
}

// Draws the values again, with an axis for the visible series.
function draw(one) {
  const parts = visible(one);
  const sums = [...Array(one.count).keys()].map((at) => {
    const values = parts.map(({ values }) => values[at] ?? 0);
    return one.kind === "columns" ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
  });
  const largest = Math.max(...sums);
  const step = one.steps.find(({ size }) => largest <= 5 * size) ?? one.steps.at(-1);
  const labels = Math.max(1, Math.min(5, Math.ceil(largest / step.size)));
  const height = (value) => ((one.base - one.top) * value) / (step.size * labels);
  one.svg.querySelector(".scale").replaceChildren(...[...Array(labels + 1).keys()].flatMap((index) => {
    const y = one.base - height(index * step.size);
    const text = drawn("text", { x: -8, y: y + 4, "text-anchor": "end" });
    const value = ((index * step.size) / step.divisor).toLocaleString("en-US");
    text.textContent = index === 0 ? "0" : value + step.suffix;
    return [drawn("line", { class: "grid", x2: "100%", y1: y, y2: y }), text];
  }));
  if (one.kind === "columns") {
    for (const column of one.svg.querySelectorAll("g[data-at]:not(.mark)")) {
      let y = one.base;
      for (const bar of column.querySelectorAll("rect")) {
        const { key, values } = one.series[bar.dataset.series];
        bar.setAttribute("display", hidden.has(key) ? "none" : "inline");
        if (hidden.has(key)) continue;
        const size = Math.max(3, height(values[column.dataset.at]));
        y -= size;
        bar.setAttribute("y", y);
        bar.setAttribute("height", size);
      }
    }
  } else {
    for (const line of one.svg.querySelectorAll("path[data-series]")) {
      const { key, values } = one.series[line.dataset.series];
      line.setAttribute("display", hidden.has(key) ? "none" : "inline");
      let path = "";
      values.forEach((value, at) => {
        if (value === null) return;
        const alone = (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null;
        const y = one.base - height(value);
        path += alone ? `M${at + 0.2} ${y}h.6` : `${(values[at - 1] ?? null) === null ? "M" : "L"}${at + 0.5} ${y}`;
      });
      line.setAttribute("d", path);
    }
  }
}

// Replaces the names in the legend with buttons that hide their series.
function addButtons(one) {
  if (one.series.length < 2) return;
  for (const { item, name, key } of one.series) {
    const button = element("button");
    button.type = "button";
    button.dataset.name = name;
    button.setAttribute("aria-pressed", String(!hidden.has(key)));
    button.append(...item.childNodes);
    item.append(button);
    button.addEventListener("click", () => {
      if (!hidden.delete(key)) hidden.add(key);
      sessionStorage.setItem(storage, JSON.stringify([...hidden]));
      button.setAttribute("aria-pressed", String(!hidden.has(key)));
      draw(one);
      if (shown?.title === one.title) show(one, index(one, shown.at));
    });
  }
  if (one.series.some(({ key }) => hidden.has(key))) draw(one);
}

// A native tooltip would cover the crosshair's values.
function takeTitles(one) {
  for (const title of one.svg.querySelectorAll("title")) {
    const owner = title.parentElement;
    if (owner.matches(".mark")) owner.dataset.text = title.textContent;
    else if (owner.matches("g[data-at]")) owner.dataset.text = title.textContent.split("\n")[0];
    title.remove();
  }
}

function index(one, at) {
  return Math.min(Math.max(Math.floor((at - one.first) / one.step), 0), one.count - 1);
}

function heading(one, at) {
  const time = one.figure.querySelector(`tbody tr[data-at="${at}"] td`)?.textContent;
  const from = one.svg.querySelector(`g[data-at="${at}"]:not(.mark)`)?.dataset.text;
  const start = new Date(one.first + at * one.step);
  const plain = start.toISOString().slice(5, one.step < 86400000 ? 16 : 10).replace("T", " ");
  const words = from ?? `${time ?? plain} UTC`;
  if (one.step >= 86400000 || start.getTimezoneOffset() === 0) return words;
  const here = start.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return `${words} (${here} here)`;
}

// Returns the texts at a step: the heading, the visible series with the cells of the table, and the marks.
function texts(one, at) {
  const cells = one.figure.querySelectorAll(`tbody tr[data-at="${at}"] td`);
  const rows = visible(one).map((series) => {
    const value = series.values[at];
    return { series, value, cell: value === null ? null : cells[series.index + 1] };
  });
  const isRecorded = one.series.some(({ values }) => values[at] !== null);
  const marks = one.svg.querySelector(`.mark[data-at="${at}"]`)?.dataset.text.split("\n") ?? [];
  return { heading: heading(one, at), rows: isRecorded ? rows : [], isRecorded, marks };
}

function fill(tip, { heading, rows, isRecorded, marks }) {
  tip.replaceChildren(element("strong", "", heading));
  for (const { series, value, cell } of rows) {
    const line = element("div");
    const name = element("span");
    name.append(series.swatch.cloneNode(true), series.name);
    const number = element("span", "num");
    if (cell) number.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
    else number.textContent = value === null ? "–" : "0";
    line.append(name, number);
    tip.append(line);
  }
  if (!isRecorded) tip.append(element("p", "muted", "Nothing was recorded."));
  for (const mark of marks) tip.append(element("p", "", mark));
}

function show(one, at, isPinned = false) {
  hide();
  shown = { title: one.title, at: one.first + at * one.step, isPinned, one };
  const said = texts(one, at);
  const place = (100 * (at + 0.5)) / one.count;
  one.svg.append(drawn("line", { class: "cross", x1: `${place}%`, x2: `${place}%`, y1: 5, y2: one.base }));
  fill(one.tip, said);
  one.tip.classList.toggle("pinned", isPinned);
  one.tip.hidden = false;
  const left = one.svg.getBoundingClientRect().left - one.plot.getBoundingClientRect().left;
  const x = left + (one.svg.getBoundingClientRect().width * place) / 100;
  const isRight = x > one.plot.clientWidth / 2;
  one.tip.style.left = isRight ? "auto" : `${x + 12}px`;
  one.tip.style.right = isRight ? `${one.plot.clientWidth - x + 12}px` : "auto";
  one.cursor.setAttribute("aria-valuenow", at);
  const values = said.rows.map(({ series, value, cell }) => {
    return `${series.name} ${cell?.textContent ?? (value === null ? "–" : 0)}`;
  });
  one.cursor.setAttribute("aria-valuetext",
    [said.heading, ...(said.isRecorded ? values : ["nothing was recorded"]), ...said.marks].join(", "));
}

function hide() {
  if (!shown) return;
  const { one } = shown;
  one.tip.hidden = true;
  one.svg.querySelector(".cross")?.remove();
  shown = undefined;
}

function addCursor(one) {
  one.cursor = element("div", "cursor");
  const attributes = { role: "slider", tabindex: 0, "aria-label": `${one.title}: values by time`, "aria-valuemin": 0,
    "aria-valuemax": one.count - 1, "aria-valuenow": one.count - 1, "aria-valuetext": heading(one, one.count - 1) };
  for (const [name, value] of Object.entries(attributes)) one.cursor.setAttribute(name, value);
  one.tip = element("div", "tip");
  one.tip.hidden = true;
  one.plot.append(one.cursor, one.tip);
  const place = (event) => {
    const box = one.svg.getBoundingClientRect();
    return Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * one.count), 0), one.count - 1);
  };
  const isPinned = () => shown?.title === one.title && shown.isPinned;
  one.plot.addEventListener("pointermove", (event) => {
    if (!isPinned()) show(one, place(event));
  });
  // A click keeps the values, so that their links can be followed.
  one.plot.addEventListener("click", (event) => {
    if (event.target.closest("a, .tip")) return;
    show(one, place(event), !isPinned());
  });
  one.cursor.addEventListener("focus", () => {
    if (shown?.title !== one.title) show(one, one.count - 1);
  });
  one.cursor.addEventListener("keydown", (event) => {
    const at = shown?.title === one.title ? index(one, shown.at) : one.count - 1;
    const page = Math.max(2, Math.round(one.count / 10));
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - page,
      PageUp: at + page, Home: 0, End: one.count - 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to !== undefined) show(one, Math.min(Math.max(to, 0), one.count - 1));
    else if (event.key === "Enter") {
      show(one, at, true);
      one.tip.querySelector("a")?.focus();
    } else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
  });
  one.tip.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    show(one, index(one, shown.at));
    one.cursor.focus();
  });
}

function start() {
  const before = shown;
  const focused = focus;
  shown = undefined;
  for (const figure of document.querySelectorAll("figure[data-chart]:not([data-ready])")) {
    if (!figure.querySelector(".plot")) continue;
    figure.dataset.ready = "";
    const one = chart(figure);
    takeTitles(one);
    addButtons(one);
    addCursor(one);
    if (before?.title === one.title) show(one, index(one, before.at), before.isPinned);
    if (focused?.title !== one.title) continue;
    const parts = [one.cursor, ...figure.querySelectorAll(".legend button, .tip a")];
    parts.find((part) => identity(part) === focused.identity)?.focus({ preventScroll: true });
  }
  // The update did not replace the section with the crosshair.
  if (!shown && before?.one.plot.isConnected) shown = before;
}

function identity(one) {
  return one.dataset.name ?? one.getAttribute("href") ?? one.getAttribute("aria-label");
}

document.addEventListener("focusin", (event) => {
  const figure = event.target.closest("figure[data-ready]");
  focus = figure ? { title: figure.dataset.chart, identity: identity(event.target) } : undefined;
  if (!focus && shown && !shown.isPinned) hide();
});
document.addEventListener("focusout", (event) => {
  setTimeout(() => {
    // The element still exists, so the visitor has moved the focus.
    if (!event.target.isConnected || document.activeElement !== document.body) return;
    focus = undefined;
    if (!shown?.isPinned) hide();
  });
});
document.addEventListener("pointerover", (event) => {
  if (shown && !shown.isPinned && !focus && !shown.one.plot.contains(event.target)) hide();
});
document.addEventListener("click", (event) => {
  if (shown?.isPinned && !shown.one.plot.contains(event.target)) hide();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown?.isPinned) hide();
});
document.addEventListener("live-update", start);
start();
