// What all pages share: keys, the menu, and buttons that copy a command.
const search = document.getElementById("search");
const keys = [["/", "Search"], ["j  k", "Next and previous row"], ["x", "Select the row"],
  ["a", "Actions on the selected rows"], ["Enter", "Open the row"], ["Esc", "Close, or leave the field"],
  ["?", "This help"]];

function help() {
  let dialog = document.getElementById("help");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "help";
    dialog.setAttribute("aria-labelledby", "help-title");
    const title = document.createElement("h2");
    title.id = "help-title";
    title.textContent = "Keys";
    const list = document.createElement("dl");
    list.className = "keys";
    for (const [key, meaning] of keys) {
      const name = document.createElement("dt");
      for (const part of key.split("  ")) {
        const cap = document.createElement("kbd");
        cap.textContent = part;
        name.append(cap, " ");
      }
      const text = document.createElement("dd");
      text.textContent = meaning;
      list.append(name, text);
    }
    const close = document.createElement("button");
    close.textContent = "Close";
    const form = document.createElement("form");
    form.method = "dialog";
    form.className = "actions";
    form.append(close);
    dialog.append(title, list, form);
    document.body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}

// The rows of all lists of the page, and the one that the keys act on.
function rows() {
  return [...document.querySelectorAll("main table.list tbody tr, main [data-rows] > *")].filter((row) => row.checkVisibility());
}

function current() {
  return document.querySelector("main .current");
}

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const old = current();
  const at = old ? all.indexOf(old) : -1;
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  old?.classList.remove("current");
  old?.removeAttribute("aria-current");
  next.classList.add("current");
  next.setAttribute("aria-current", "true");
  next.scrollIntoView({ block: "nearest" });
}

function select() {
  const box = current()?.querySelector("input[type=checkbox]");
  if (!box || box.disabled) return;
  box.checked = !box.checked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
}

const actions = {
  "/": () => { search?.focus(); search?.select(); },
  "?": help,
  j: () => move(1),
  k: () => move(-1),
  x: select,
  a: () => document.querySelector(".bar:not([hidden]) [data-actions] button")?.focus(),
};

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.key === "Escape") {
    if (target.matches("input, textarea, select")) target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
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
    // Without TLS, browsers refuse; then the text is selected for the keyboard.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

function reveal() {
  for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
}
document.addEventListener("live-update", reveal);
reveal();
