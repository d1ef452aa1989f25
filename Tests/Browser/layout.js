// The body of a function that test_layout.py runs in a page at one width. Returns the faults of the layout as sentences.
const [limits] = arguments;
const faults = [];
const brief = (text) => text.replace(/\s+/g, " ").trim().slice(0, 50);
const name = (one) => {
  const mark = one.id ? `#${one.id}` : one.getAttribute("class") ? `.${one.getAttribute("class").trim().split(/\s+/).join(".")}` : "";
  return `${one.tagName.toLowerCase()}${mark} "${brief(one.textContent || one.getAttribute("aria-label") || one.name || "")}"`;
};
const isVisible = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !one.closest(".hidden, .skip");

// 1. The page does not scroll sideways.
const root = document.documentElement;
if (root.scrollWidth > innerWidth) {
  const wide = [...document.body.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1
    && isVisible(one) && !one.parentElement.closest(".table, pre, svg"));
  faults.push(`the page is ${root.scrollWidth} px wide: ${wide.slice(0, 3).map(name).join(", ")}`);
}

// 2. No word is broken. Browsers break before and after other characters by the rules of Unicode.
const words = /[\p{L}\p{N}_]+(?:[.,:’'][\p{L}\p{N}_]+)*/gu;
const range = document.createRange();
function check(cell, longest) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (!text.data.trim() || text.parentElement.closest("svg, pre, textarea, .source, .hidden")) continue;
    range.selectNodeContents(text);
    const whole = range.getClientRects();
    // A text on one line has no broken word.
    if (whole.length < 2 || whole[0].top === whole[whole.length - 1].top) continue;
    for (const word of text.data.matchAll(words)) {
      if (word[0].length < 2 || word[0].length > longest) continue;
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const parts = [...range.getClientRects()].filter((part) => part.width > 0);
      if (parts.length > 1 && Math.max(...parts.map((part) => part.top)) - Math.min(...parts.map((part) => part.top)) > 4) {
        faults.push(`the word ${word[0]} is broken in ${name(cell)}`);
        break;
      }
    }
  }
}
for (const cell of document.querySelectorAll("th, td")) if (isVisible(cell)) check(cell, limits.word);
for (const part of document.querySelectorAll("dt, dd, button, .button, .label, .tabs a, .figure span, .chip")) {
  if (isVisible(part) && !part.closest("td, th")) check(part, limits.fact);
}
// Texts that never wrap are on one line; in the card of a phone, they may wrap.
for (const one of document.querySelectorAll(`.label, button, .tabs a${innerWidth < 640 ? "" : ", td.key, td.number"}`)) {
  if (!isVisible(one)) continue;
  const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (!text.data.trim() || text.parentElement.closest("svg, pre, .clamp, .hidden, .command")) continue;
    range.selectNodeContents(text);
    const parts = [...range.getClientRects()].filter((part) => part.width > 0 && part.height > 0);
    if (parts.some((part) => part.top >= parts[0].bottom - 2)) faults.push(`the text "${brief(text.data)}" in ${name(one)} has several lines`);
  }
}

// 3. Targets are large enough, or have enough space around them (WCAG 2.2, 2.5.8). Bars of a page are layers of their own.
const controls = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
  .filter((one) => isVisible(one) && !one.closest("svg") && one.getClientRects().length > 0);
const layer = (one) => {
  for (let part = one; part && part !== document.body; part = part.parentElement) {
    if (["fixed", "sticky"].includes(getComputedStyle(part).position)) return part;
  }
  return document.body;
};
const isBox = (one) => one.matches("input[type=checkbox], input[type=radio]");
const targets = controls.map((one) => {
  const box = one.getBoundingClientRect();
  // A click on the label of a box is one on the box.
  const label = isBox(one) && one.closest("label")?.getBoundingClientRect();
  return { one, box: label || box, layer: layer(one) };
});
const isSmall = ({ box }) => Math.min(box.width, box.height) < limits.target - 0.5;
const isInText = (one) => {
  if (getComputedStyle(one).display !== "inline") return false;
  const line = one.closest("p, li, td, dd, h1, h2, h3, footer, figcaption, div, section");
  return Boolean(line) && (line.matches("td, dd") || line.textContent.trim().length > one.textContent.trim().length);
};
const centre = ({ box }) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
for (const target of targets.filter((target) => isSmall(target) && !isInText(target.one))) {
  const [x, y] = centre(target);
  const crowded = targets.find((other) => {
    if (other.one === target.one || other.layer !== target.layer) return false;
    const away = Math.hypot(Math.max(other.box.left - x, x - other.box.right, 0), Math.max(other.box.top - y, y - other.box.bottom, 0));
    const [otherX, otherY] = centre(other);
    return away < limits.target / 2 || (isSmall(other) && Math.hypot(otherX - x, otherY - y) < limits.target);
  });
  if (crowded) {
    faults.push(`${name(target.one)} is ${Math.round(target.box.width)} × ${Math.round(target.box.height)} px, beside ${name(crowded.one)}`);
  }
}

// 4. Nothing covers a control once the browser has moved it into view, as it does for Tab.
for (const one of controls) {
  if (one.closest(".clamp")) continue;
  one.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  const part = [...one.getClientRects()].find(({ width }) => width > 0) ?? one.getBoundingClientRect();
  if (part.height > innerHeight / 2) continue;
  const [x, y] = [(part.left + part.right) / 2, (part.top + part.bottom) / 2];
  const hit = document.elementFromPoint(x, y);
  const isHit = hit && (one.contains(hit) || [...(one.labels ?? [])].some((label) => label.contains(hit)));
  if (!isHit) faults.push(`${name(one)} is covered at ${Math.round(x)}, ${Math.round(y)} by ${hit ? name(hit) : "the edge of the window"}`);
}
scrollTo(0, 0);

// 5. No column of a list is cut off.
for (const one of document.querySelectorAll(".table")) {
  if (isVisible(one) && one.scrollWidth > one.clientWidth + 1) {
    faults.push(`${one.getAttribute("aria-label")} needs ${one.scrollWidth} of ${one.clientWidth} px`);
  }
}

// 6. The header is one line.
const top = document.querySelector("header.top");
if (top && top.getBoundingClientRect().height > limits.header) faults.push(`the header is ${top.getBoundingClientRect().height} px high`);
return [...new Set(faults)].slice(0, 12);
