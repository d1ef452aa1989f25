// Keeps the sections of a page that are marked data-live up to date. The events have the page's URL.
const state = document.getElementById("live-state");
// For each section, the received content and its first node, because other scripts change or replace the nodes.
const received = new WeakMap();
let source;
let timer;
let updated = new Date();

function show(text) {
  document.body.classList.remove("stale");
  if (!state || state.textContent === text) return;
  delete state.dataset.shown;
  state.textContent = text;
}

// The numbers remain, and are marked as old.
function fail(reason, login) {
  document.body.classList.add("stale");
  if (!state) return;
  const text = `Not up to date since ${updated.toLocaleTimeString()}: ${reason}`;
  if (state.dataset.shown === text) return;
  state.dataset.shown = text;
  state.textContent = text;
  if (!login) return;
  const link = document.createElement("a");
  // Reloading the page leads to the login, and back.
  link.href = location.href;
  link.textContent = "Log in again";
  state.append(" ", link);
}

// A section is not updated while it has a focused field, a checked box or selected text.
function isBusy(part) {
  const active = document.activeElement;
  if (active && part.contains(active) && active.matches("input, select, textarea")) return true;
  if (part.querySelector("input[type=checkbox]:checked")) return true;
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

// A key that identifies a focusable element before and after an update of its section.
function identity(one, part) {
  const details = one.parentElement;
  if (one.matches("summary")) return `details ${details.id || all(part, "details").indexOf(details)}`;
  const form = one.form ? `${one.form.action} ${new URLSearchParams(new FormData(one.form))} ` : "";
  return one.getAttribute("href") ?? one.getAttribute("aria-label") ?? `${form}${one.textContent}`;
}

function all(part, selector) {
  return [...part.querySelectorAll(selector)];
}

function isShown(section, content) {
  const last = received.get(section);
  return last ? last.content === content && last.first === section.firstChild : section.innerHTML === content;
}

function update(html) {
  updated = new Date();
  const next = new DOMParser().parseFromString(html, "text/html");
  const icon = next.querySelector("main[data-icon]")?.dataset.icon;
  const link = document.querySelector("link[rel=icon]");
  if (icon && link && link.getAttribute("href") !== icon) link.setAttribute("href", icon);
  let focused;
  for (const part of all(next, "[data-live]")) {
    const old = document.getElementById(part.id);
    const content = part.innerHTML;
    if (!old || isShown(old, content) || isBusy(old)) continue;
    const key = (details, index) => details.id || index;
    const open = new Map(all(old, "details").map((details, index) => [key(details, index), details.open]));
    const active = document.activeElement;
    if (active && old.contains(active)) focused = { old, identity: identity(active, old) };
    old.replaceChildren(...document.adoptNode(part).childNodes);
    received.set(old, { content, first: old.firstChild });
    all(old, "details").forEach((details, index) => {
      details.open = open.get(key(details, index)) ?? details.open;
    });
  }
  document.dispatchEvent(new Event("live-update"));
  // Other scripts may already have moved the focus.
  if (!focused || document.activeElement !== document.body) return;
  all(focused.old, "[href], [aria-label], button, summary")
    .find((one) => identity(one, focused.old) === focused.identity)?.focus({ preventScroll: true });
}

async function poll() {
  const mine = timer;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.ok) {
      update(await answer.text());
      show("Updated every ten seconds.");
    } else if (answer.type === "opaqueredirect" || answer.status === 401) {
      fail("the session has ended.", true);
    } else {
      fail(`the dashboard answered ${answer.status}.`);
    }
  } catch {
    fail("no connection.");
  } finally {
    // The tab may have been hidden in the meantime, or updates may have begun again.
    if (timer === mine) timer = setTimeout(poll, 10000);
  }
}

function start() {
  if (source || timer) return;
  source = new EventSource(location.href);
  source.addEventListener("update", (event) => {
    show("Live.");
    update(event.data);
  });
  source.addEventListener("problem", (event) => fail(event.data));
  source.addEventListener("error", () => {
    fail("no connection.");
    // The server has too many streams, or the session has expired: poll instead.
    if (source && source.readyState === EventSource.CLOSED) {
      stop();
      timer = setTimeout(poll, 1000);
    }
  });
}

function stop() {
  source?.close();
  source = undefined;
  clearTimeout(timer);
  timer = undefined;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stop();
    show("Paused while the tab is hidden.");
  } else {
    start();
  }
});
addEventListener("pagehide", stop);
if (!document.hidden) start();
