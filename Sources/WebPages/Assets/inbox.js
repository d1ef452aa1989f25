// The inbox: updates the ages, and shows notifications of the browser.
const wants = "inbox-notifications";
let last = newest();
let isWaiting = false;

function newest() {
  return Number(document.querySelector("[data-newest]")?.dataset.newest ?? 0);
}

function age(milliseconds) {
  const seconds = Math.max(0, Math.floor((Date.now() - milliseconds) / 1000));
  if (seconds < 120) return `${seconds} s ago`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
}

function showAges() {
  for (const time of document.querySelectorAll("time[data-age]")) {
    const text = age(Number(time.dataset.age));
    if (time.textContent !== text) time.textContent = text;
  }
}

// Runs only while notifications are on. One request waits for the next push, even while the tab is hidden.
function isOn() {
  return "Notification" in window && Notification.permission === "granted" && localStorage.getItem(wants) === "on";
}

function show(push) {
  const alert = push.payload?.aps?.alert;
  const texts = [alert, alert?.title, alert?.body].filter((text) => typeof text === "string");
  const target = (push.token ?? push.channel ?? "").slice(0, 8);
  const answer = push.accepted ? "" : `not shown: ${push.outcome?.status ?? push.outcome} `;
  const notification = new Notification(`${push.topic ?? "Push"} ${target}`, {
    body: answer + (texts.join(" — ") || push.push_type || "no banner"),
    tag: `push-${push.sequence}`,
  });
  notification.addEventListener("click", () => {
    focus();
    location.href = `/inbox/${push.sequence}`;
  });
}

async function wait() {
  if (isWaiting) return;
  isWaiting = true;
  while (isOn()) {
    try {
      const answer = await fetch(`/notifications?after=${last}&limit=20&wait=60`);
      if (!answer.ok) throw new Error(answer.statusText);
      const page = await answer.json();
      // A restarted simulator counts from the beginning.
      last = page.last;
      if (isOn()) page.notifications.slice(-3).forEach(show);
    } catch {
      // The simulator has stopped, or is starting.
      await new Promise((resolve) => { setTimeout(resolve, 10000); });
    }
  }
  isWaiting = false;
}

function showButton() {
  const button = document.querySelector("button[data-notify]");
  if (!button || !("Notification" in window) || Notification.permission === "denied") return;
  button.hidden = false;
  button.setAttribute("aria-pressed", String(isOn()));
  button.textContent = isOn() ? "Notifications on" : "Notify me";
}

document.addEventListener("click", async (event) => {
  if (!event.target.closest("button[data-notify]")) return;
  const enable = !isOn();
  if (enable && Notification.permission !== "granted") await Notification.requestPermission();
  localStorage.setItem(wants, enable ? "on" : "off");
  last = Math.max(last, newest());
  showButton();
  wait();
});

document.addEventListener("live-update", () => {
  showAges();
  showButton();
});
setInterval(() => { if (!document.hidden) showAges(); }, 5000);
showAges();
showButton();
wait();
