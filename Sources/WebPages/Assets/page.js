// The script of all pages: keyboard shortcuts, and buttons that copy a command.
const search = document.getElementById("search");
// The address of the current row's first link, and the row's index. An update replaces the rows.
let marked;

// The rows of all lists of the page.
function rows() {
  return [...document.querySelectorAll("main table.list tbody tr, main [data-rows] > *")]
    .filter((row) => row.checkVisibility());
}

// Returns the row for the keys.
function current() {
  return document.querySelector("main .current");
}

function address(row) {
  return row.querySelector("a[href]")?.getAttribute("href");
}

function mark(row) {
  row.classList.add("current");
  row.setAttribute("aria-current", "true");
}

function move(step) {
  const all = rows();
  const old = current();
  if (all.length === 0) return;
  // If the row is gone, the next row now has its index.
  const from = old ? all.indexOf(old) : (marked?.at ?? -1) - (marked && step > 0 ? 1 : 0);
  const at = Math.min(Math.max(from + step, 0), all.length - 1);
  old?.classList.remove("current");
  old?.removeAttribute("aria-current");
  mark(all[at]);
  marked = { at, address: address(all[at]) };
  all[at].scrollIntoView({ block: "nearest" });
}

// Marks the current row again after an update.
function restore() {
  if (!marked || current()) return;
  const same = rows().filter((row) => marked.address && address(row) === marked.address);
  if (same.length > 0) mark(same[0]);
}

function select() {
  const box = current()?.querySelector("input[type=checkbox]");
  if (!box) return;
  box.checked = !box.checked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
}

// Returns the button that deletes the current row or, on a page about one thing, this thing.
function deletion() {
  const scope = document.querySelector("main [data-rows]") ? current() : document.querySelector("main");
  return scope?.querySelector("button[data-delete]");
}

function neighbour(rel) {
  return document.querySelector(`main [data-neighbours] a[rel=${rel}]`);
}

const hasNeighbours = () => Boolean(document.querySelector("main [data-neighbours]"));
// On a page about one of several things, j and k open the others.
const hasRows = () => !hasNeighbours() && rows().length > 0;
// The keys with their meanings, and a condition for the pages where they work; without one, they work on all pages.
const keys = [
  { keys: ["/"], meaning: "Search", works: () => Boolean(search) },
  { keys: ["j", "k"], meaning: "Next and previous row", works: hasRows },
  { keys: ["j", "k"], meaning: "Older and newer push", works: hasNeighbours },
  { keys: ["x"], meaning: "Select the row", works: () => Boolean(document.querySelector("form[data-select]")) },
  { keys: ["a"], meaning: "Actions on the selected rows",
    works: () => Boolean(document.querySelector("form[data-select]")) },
  { keys: ["Enter"], meaning: "Open the row", works: hasRows },
  { keys: ["Delete"], meaning: "Delete the push", works: () => Boolean(document.querySelector("button[data-delete]")) },
  { keys: ["Esc"], meaning: "Close, or leave the field" },
  { keys: ["?"], meaning: "This help" },
];

function element(name, text, ...children) {
  const one = document.createElement(name);
  one.textContent = text;
  one.append(...children);
  return one;
}

function help() {
  let dialog = document.getElementById("help");
  if (!dialog) {
    const title = element("h2", "Keys");
    title.id = "help-title";
    const list = element("dl", "");
    list.className = "keys";
    const form = element("form", "", element("button", "Close"));
    form.method = "dialog";
    form.className = "actions";
    dialog = element("dialog", "", title, list, form);
    dialog.id = "help";
    dialog.setAttribute("aria-labelledby", title.id);
    document.body.append(dialog);
  }
  // An update can add and remove rows and buttons.
  const working = keys.filter(({ works }) => !works || works());
  dialog.querySelector(".keys").replaceChildren(...working.flatMap(({ keys, meaning }) => {
    return [element("dt", "", ...keys.flatMap((key) => [element("kbd", key), " "])), element("dd", meaning)];
  }));
  dialog.showModal();
}

const actions = {
  "/": () => { search?.focus(); search?.select(); },
  "?": help,
  j: () => (hasNeighbours() ? neighbour("next")?.click() : move(1)),
  k: () => (hasNeighbours() ? neighbour("prev")?.click() : move(-1)),
  x: select,
  a: () => document.querySelector(".bar:not([hidden]) [data-actions] button")?.focus(),
  Delete: () => deletion()?.click(),
};

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.key === "Escape") {
    if (target.matches("input, textarea, select")) target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (target.matches("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]")) return;
  if (event.key === "Enter") {
    if (target === document.body || target.matches("main, .table")) current()?.querySelector("a[href]")?.click();
    return;
  }
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = button.parentElement.querySelector("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Without TLS, browsers refuse to copy. Then the text is selected, to be copied with the keyboard.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

function reveal() {
  for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
}
document.addEventListener("live-update", () => {
  reveal();
  restore();
});
reveal();
