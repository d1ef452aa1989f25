// Selects rows of a list for an action. The bar with the actions appears once a row is selected. Its option for everything that matches
// appears once all rows of the page are selected.
const form = document.querySelector("form[data-select]");
const bar = form?.querySelector("[data-bar]");
let last;

function boxes() {
  return [...form.querySelectorAll("tbody input[type=checkbox]")];
}

// Scrolls so that the bar does not cover a row.
function uncover(row) {
  const hidden = row.getBoundingClientRect().bottom - bar.getBoundingClientRect().top;
  if (hidden > 0) scrollBy(0, hidden + 8);
}

function count() {
  const all = boxes();
  const chosen = all.filter((box) => box.checked);
  const isWhole = chosen.length > 0 && chosen.length === all.length;
  const head = form.querySelector("thead input[type=checkbox]");
  if (head) {
    head.checked = isWhole;
    head.indeterminate = chosen.length > 0 && !isWhole;
  }
  bar.querySelector("[data-selected]").textContent = `${chosen.length} selected`;
  bar.querySelector("[data-all]").hidden = isWhole;
  bar.querySelector("[data-scope]").hidden = !isWhole;
  // A hidden choice must not be sent.
  if (!isWhole) bar.querySelector("input[name=scope][value=selected]").checked = true;
  bar.hidden = chosen.length === 0;
  for (const box of all) box.closest("tr").classList.toggle("selected", box.checked);
}

function selectAll(isChecked) {
  for (const box of boxes()) box.checked = isChecked;
  count();
}

if (form && bar) {
  bar.classList.replace("toolbar", "bar");
  bar.querySelector("[data-none]").hidden = false;
  form.addEventListener("click", (event) => {
    if (event.target.closest("[data-all]")) selectAll(true);
    if (event.target.closest("[data-none]")) {
      selectAll(false);
      (last?.isConnected ? last : form.querySelector("input[type=checkbox]"))?.focus();
    }
    const box = event.target;
    if (!box.matches("tbody input[type=checkbox]")) return;
    const all = boxes();
    const from = all.indexOf(last);
    if (event.shiftKey && from >= 0) {
      const to = all.indexOf(box);
      for (const one of all.slice(Math.min(from, to), Math.max(from, to) + 1)) one.checked = box.checked;
      // Browsers also select the text between the two clicks.
      getSelection().removeAllRanges();
    }
    last = box;
  });
  // page.js sends this event, too.
  form.addEventListener("change", (event) => {
    if (event.target.closest("thead")) return selectAll(event.target.checked);
    if (!event.target.matches("tbody input[type=checkbox]")) return;
    last = event.target;
    count();
    if (!bar.hidden) uncover(event.target.closest("tr"));
  });
  // After going back, a browser restores the boxes only when the script has run.
  addEventListener("pageshow", count);
  count();
}
