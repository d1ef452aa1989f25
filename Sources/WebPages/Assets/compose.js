// Checks the job in a form as it is edited, shows a preview on a device, and asks before the job is sent.
const form = document.querySelector("form[data-check]");
const target = document.getElementById("verdicts");
const dialog = document.getElementById("ask");
let timer;
let running;

async function check() {
  clearTimeout(timer);
  running?.abort();
  running = new AbortController();
  try {
    const answer = await fetch(form.dataset.check, {
      method: "POST", body: new URLSearchParams(new FormData(form)), signal: running.signal,
    });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const checked = page.getElementById("checked") ?? page.querySelector("main") ?? page.body;
    target.replaceChildren(...document.adoptNode(checked).childNodes);
  } catch (error) {
    if (error.name !== "AbortError") target.textContent = "The check did not reach the server.";
  }
}

// Shows where the job goes, as it is now.
async function ask(button) {
  await check();
  if (dialog.open) return;
  const place = dialog.querySelector("[data-destination]");
  const found = target.querySelector(".destination, .problem.bad") ?? target;
  const words = document.createElement("p");
  words.append(...[...found.childNodes].map((node) => node.cloneNode(true)));
  place.replaceChildren(words);
  dialog.returnValue = "";
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "send") return;
    form.dataset.sure = "";
    form.requestSubmit(button);
  }, { once: true });
}

if (form && target) {
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, 300);
  });
  if (dialog) {
    form.querySelector("[data-question]")?.remove();
    form.addEventListener("submit", (event) => {
      if (event.submitter?.hasAttribute("formaction")) return;
      if ("sure" in form.dataset) {
        delete form.dataset.sure;
        return;
      }
      event.preventDefault();
      ask(event.submitter);
    });
  }
  check();
}
