// Checks the job in a form as it is edited, shows a preview on a device, and asks before the job is sent.
const form = document.querySelector("form[data-check]");
const target = document.getElementById("verdicts");
const dialog = document.getElementById("ask");
let timer;
let running;
const job = form?.elements.namedItem("job");
const members = form?.querySelector("[data-members]");
const device = "try-token";

// Returns the place and value of the first string member with a name. So the rest of the job stays byte for byte.
function member(name) {
  const found = new RegExp(`"${name}"\\s*:\\s*("(?:[^"\\\\]|\\\\.)*")`, "d").exec(job.value);
  if (!found) return undefined;
  try {
    return { place: found.indices[1], value: JSON.parse(found[1]) };
  } catch {
    return undefined;
  }
}

function write(name, value) {
  const found = member(name);
  if (!found) return;
  job.value = job.value.slice(0, found.place[0]) + JSON.stringify(value) + job.value.slice(found.place[1]);
}

// Copies the members of the job to the fields. A field is disabled if the job does not have its member.
function showMembers() {
  for (const field of members.querySelectorAll("[data-member]")) {
    const found = member(field.dataset.member);
    field.disabled = !found;
    if (document.activeElement !== field) field.value = found?.value ?? "";
  }
}

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

// Shows the destination of the job in its present form.
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
  if (members) {
    const last = localStorage.getItem(device);
    // The page begins with a token of zeros, which no device has.
    if (last && /^0+$/.test(member("token")?.value ?? "")) write("token", last);
    members.hidden = false;
    showMembers();
    form.addEventListener("input", ({ target: field }) => {
      if (field.dataset.member) write(field.dataset.member, field.value);
      showMembers();
    });
    form.addEventListener("submit", ({ submitter }) => {
      const token = member("token")?.value;
      if (token && !submitter?.hasAttribute("formaction")) localStorage.setItem(device, token);
    });
  }
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
