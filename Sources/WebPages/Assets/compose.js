// Checks the job in a form as it is edited, and shows a preview on a device.
const form = document.querySelector("form[data-check]");
const target = document.getElementById("verdicts");
let timer;
let running;

async function check() {
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

if (form && target) {
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, 300);
  });
  check();
}
