// Actions without leaving the page: a dialog for changes that need a confirmation, toasts, and the list of bulk actions.
const toasts = document.getElementById("toasts");
const busy = new Set(["counting", "running"]);
// The last known state of each run.
const states = new Map();
let dialog;
let title;
let content;
let close;
// The run in the dialog: the path of its content, its state, and the button that started it.
let shown;
let timer;
let strip;

function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

// Toasts

// Reports the failure of an action: in the dialog if one is open, otherwise as a toast.
function report(heading, text) {
  const one = document.createElement("div");
  one.className = `toast ${heading === "Refused" ? "warning" : "bad"}`;
  const words = document.createElement("p");
  const name = document.createElement("strong");
  name.textContent = `${heading}. `;
  const end = /[.!?]$/.test(text) ? "" : ".";
  words.append(name);
  // Every second part was between backticks.
  (text.charAt(0).toUpperCase() + text.slice(1) + end).split("`").forEach((part, index) => {
    const piece = document.createElement(index % 2 === 1 ? "code" : "span");
    piece.textContent = part;
    words.append(piece);
  });
  const row = document.createElement("div");
  row.className = "actions";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small quiet";
  button.dataset.dismiss = "";
  button.textContent = "Dismiss";
  row.append(button);
  one.append(words, row);
  if (dialog?.open) {
    one.setAttribute("role", "alert");
    dialog.append(one);
  } else {
    toasts.append(one);
  }
}

// Shows that an action is in progress once it takes long, such as the resuming of an app. Returns a function that removes the toast.
function begin() {
  const one = document.createElement("div");
  one.className = "toast";
  one.textContent = "In progress…";
  const late = setTimeout(() => (dialog?.open ? dialog : toasts).append(one), 700);
  return () => {
    clearTimeout(late);
    one.remove();
  };
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-dismiss]");
  if (!button) return;
  button.closest(".toast").remove();
  const next = document.querySelector("dialog[open] h2, #toasts [data-dismiss]") ?? document.getElementById("main");
  next?.focus({ preventScroll: true });
});
toasts?.addEventListener("animationend", (event) => {
  if (event.animationName === "toast") event.target.remove();
});

// Screen readers announce only elements that are added to a page that they already know.
const first = [...toasts?.children ?? []];
if (first.length > 0) {
  toasts.replaceChildren();
  setTimeout(() => toasts.append(...first), 100);
}
const here = new URL(location.href);
if (here.searchParams.has("note")) {
  here.searchParams.delete("note");
  history.replaceState(history.state, "", here);
}

// Forms

async function send(path, form, button) {
  try {
    const fields = button ? new FormData(form, button) : new FormData(form);
    const answer = await fetch(path, {
      method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(fields),
    });
    const text = await answer.text();
    let found = {};
    try {
      found = JSON.parse(text);
    } catch {
      // The answer is not JSON, so a proxy has sent it.
    }
    if (answer.ok && found.page) return found;
    const refused = answer.status >= 400 && answer.status < 500;
    report(refused ? "Refused" : "Failed", found.error ?? `The dashboard answered with status ${answer.status}`);
  } catch {
    report("Failed", "The dashboard did not answer; Activity shows whether the action was carried out");
  }
  return undefined;
}

document.addEventListener("submit", async (event) => {
  const [form, button] = [event.target, event.submitter];
  // A field with the name "action" would hide the form's property.
  const path = button?.getAttribute("formaction") ?? form.getAttribute("action") ?? "";
  // The page of a run shows its progress itself, so it needs no dialog.
  if (event.defaultPrevented || !/\/actions\/[a-z-]+$/.test(path) || form.closest("#run")) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  form.setAttribute("aria-busy", "true");
  const end = begin();
  const answer = await send(path, form, button);
  end();
  form.removeAttribute("aria-busy");
  if (!answer) return;
  if (!answer.run) go(answer.page);
  else if (dialog?.open && path.endsWith("/stop-run") && shown.state !== "running") dialog.close();
  else show(answer.run, button);
});

// Opens a page, even if it is the current one.
function go(path) {
  const next = new URL(path, location.href);
  if (next.pathname === location.pathname && next.search === location.search) location.reload();
  else location.assign(next);
}

// The dialog of a run

function build() {
  dialog = document.createElement("dialog");
  dialog.className = "action";
  dialog.setAttribute("aria-labelledby", "action-title");
  title = document.createElement("h2");
  title.id = "action-title";
  title.tabIndex = -1;
  content = document.createElement("div");
  const form = document.createElement("form");
  form.method = "dialog";
  form.className = "actions";
  close = document.createElement("button");
  form.append(close);
  dialog.append(title, content, form);
  document.getElementById("main").append(dialog);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    leave();
  });
  dialog.addEventListener("close", closed);
}

// Shows a run in the open dialog or in a new one, given the path of its content.
function show(path, button) {
  if (!dialog) build();
  clearTimeout(timer);
  const opener = dialog.open ? shown.opener : button;
  shown = { path, opener, form: opener?.form?.getAttribute("action"), delay: 300, state: "counting" };
  return load();
}

async function load() {
  const mine = shown;
  let part;
  try {
    const answer = await fetch(mine.path, { headers: { Accept: "text/html" } });
    if (answer.ok) part = parsed(await answer.text()).querySelector(".run");
    if (mine !== shown) return;
    if (part) fill(document.adoptNode(part));
    else lose("The dashboard no longer knows this run, or the session has ended. Activity shows what was changed.");
  } catch {
    if (mine !== shown) return;
    // The run continues without this page.
    mine.delay = 3000;
    if (!dialog.open) lose("The dashboard did not answer.");
  }
  if (busy.has(mine.state) && dialog.open) timer = setTimeout(load, mine.delay);
}

function fill(part) {
  const active = document.activeElement;
  const label = content.contains(active) ? active.textContent : undefined;
  shown.state = part.dataset.state;
  shown.delay = Math.min(shown.delay * 1.3, 1000);
  states.set(shown.path.split("/").at(-2), shown.state);
  title.textContent = part.dataset.title;
  content.replaceChildren(part);
  const stop = part.querySelector('form[action$="/stop-run"]');
  close.hidden = Boolean(stop) && shown.state !== "running";
  close.textContent = shown.state === "running" ? "Close, and let it run" : "Close";
  if (!dialog.open) {
    dialog.querySelectorAll(".toast").forEach((one) => one.remove());
    dialog.showModal();
    title.focus();
  } else if (!dialog.contains(document.activeElement) || document.activeElement === dialog) {
    const same = [...content.querySelectorAll("button")].find((one) => one.textContent === label);
    (same ?? title).focus();
  }
}

// Shows an error in place of the run.
function lose(text) {
  const part = document.createElement("div");
  part.className = "run";
  part.dataset.state = "failed";
  part.dataset.title = "Unknown";
  const words = document.createElement("p");
  words.className = "problem bad";
  words.setAttribute("role", "alert");
  words.textContent = text;
  part.append(words);
  fill(part);
}

// Esc stops an unconfirmed run. A confirmed run continues.
async function leave() {
  const stop = shown.state === "running" ? null : content.querySelector('form[action$="/stop-run"]');
  dialog.close();
  if (stop) await send(stop.getAttribute("action"), stop);
}

function closed() {
  clearTimeout(timer);
  const back = content.querySelector("[data-back]")?.dataset.back;
  const { opener, form } = shown;
  // A new object, so that a late answer does not open the dialog again.
  shown = { ...shown };
  content.replaceChildren();
  if (back) {
    go(back);
    return;
  }
  // An update may have replaced the button, so look it up again.
  const twin = [...document.querySelectorAll("form button")].find(
    (one) => opener && one.textContent === opener.textContent && one.form?.getAttribute("action") === form);
  (opener?.isConnected ? opener : twin)?.focus();
  if (shown.state === "running") look();
}

// Bulk actions in view

// Finds runs that have ended, and asks again while one is in progress. Live pages need not ask.
function notice() {
  let works = false;
  for (const item of document.querySelectorAll("#runs [data-run]")) {
    const { run, state } = item.dataset;
    works ||= busy.has(state);
    const before = states.get(run);
    const isShown = dialog?.open && shown.path.includes(`/${run}/`);
    if (isShown) continue;
    states.set(run, state);
    const toast = item.querySelector("template")?.content.firstElementChild;
    if (busy.has(before) && !busy.has(state) && toast) toasts.append(document.importNode(toast, true));
  }
  clearTimeout(strip);
  if (works && !document.querySelector("main[data-live-page]")) strip = setTimeout(look, 2000);
}

async function look() {
  const list = document.getElementById("runs");
  if (!list) return;
  try {
    const answer = document.hidden ? undefined : await fetch(toasts.dataset.runs, { headers: { Accept: "text/html" } });
    const next = answer?.ok ? parsed(await answer.text()).getElementById("runs") : undefined;
    if (next && next.innerHTML !== list.innerHTML) {
      const href = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : undefined;
      list.replaceChildren(...document.adoptNode(next).childNodes);
      if (href) [...list.querySelectorAll("a")].find((one) => one.getAttribute("href") === href)?.focus();
    }
  } catch {
    // The next look may reach the dashboard.
  }
  notice();
}

document.addEventListener("live-update", notice);
notice();
