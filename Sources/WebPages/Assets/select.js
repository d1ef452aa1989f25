// Selects rows of a table for an action: a box that selects all, and the number of selected rows.
const form = document.querySelector("form[data-select]");

function boxes() {
  return [...form.querySelectorAll("tbody input[type=checkbox]")];
}

function count() {
  const all = boxes();
  const chosen = all.filter((box) => box.checked).length;
  const box = form.querySelector("thead input[type=checkbox]");
  if (box) {
    box.checked = chosen > 0 && chosen === all.length;
    box.indeterminate = chosen > 0 && chosen < all.length;
  }
  for (const text of form.querySelectorAll("[data-selected]")) text.textContent = `${chosen} selected`;
  for (const button of form.querySelectorAll("button[data-needs-selection]")) button.disabled = chosen === 0;
}

if (form) {
  form.addEventListener("change", (event) => {
    if (event.target.closest("thead")) for (const box of boxes()) box.checked = event.target.checked;
    count();
  });
  document.addEventListener("live-update", count);
  count();
}
