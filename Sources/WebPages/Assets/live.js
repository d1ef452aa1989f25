// Keeps the sections of a page that are marked data-live up to date. The events have the page's URL.
const state = document.getElementById("live-state");
let source;
let timer;

function show(text) {
  if (state && state.textContent !== text) state.textContent = text;
}

// A section keeps its content while it has the focus in a field, a checked box or selected text.
function isBusy(part) {
  const active = document.activeElement;
  if (active && part.contains(active) && active.matches("input, select, textarea")) return true;
  if (part.querySelector("input[type=checkbox]:checked")) return true;
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

// The attribute that identifies a link or a button before and after an update.
function identity(one) {
  return one.getAttribute("href") ?? one.getAttribute("aria-label")
    ?? (one.form ? `${one.form.action} ${new URLSearchParams(new FormData(one.form))} ${one.textContent}` : null);
}

function update(html) {
  const next = new DOMParser().parseFromString(html, "text/html");
  const icon = next.querySelector("main[data-icon]")?.dataset.icon;
  const link = document.querySelector("link[rel=icon]");
  if (icon && link && link.getAttribute("href") !== icon) link.setAttribute("href", icon);
  for (const part of next.querySelectorAll("[data-live]")) {
    const old = document.getElementById(part.id);
    if (!old || old.innerHTML === part.innerHTML || isBusy(old)) continue;
    const key = (details, index) => details.id || index;
    const open = new Map([...old.querySelectorAll("details")].map((details, index) => [key(details, index), details.open]));
    const active = document.activeElement;
    const focused = active && old.contains(active) ? identity(active) : null;
    old.replaceChildren(...document.adoptNode(part).childNodes);
    old.querySelectorAll("details").forEach((details, index) => {
      details.open = open.get(key(details, index)) ?? details.open;
    });
    if (focused) {
      [...old.querySelectorAll("[href], [aria-label], button")].find((one) => identity(one) === focused)?.focus();
    }
  }
  document.dispatchEvent(new Event("live-update"));
}

async function poll() {
  const mine = timer;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok) {
      update(await answer.text());
      show("Updated every ten seconds.");
    }
  } catch {
    show("Not up to date: no connection.");
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
  source.addEventListener("problem", (event) => show(`Not up to date: ${event.data}`));
  source.addEventListener("error", () => {
    show("Not up to date: no connection.");
    // The server has too many streams, or the session has expired: poll instead.
    if (source && source.readyState === EventSource.CLOSED) {
      stop();
      timer = setTimeout(poll, 10000);
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
