"""Takes the screenshots of the docs under a demo load.

The load lasts seconds. To fill the charts, its minute is repeated, with varying size, for the hour before."""

import calendar
import io
import math
import sys
import time
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from browser import Browser
from scene import Scene, eventually, get_json, token


def jobs(now):
    """Yields the mix of jobs of a shop."""
    for number in range(1200):
        prefix = {10: "0410", 20: "0503", 30: "0429"}.get(number % 40, "00fc")
        yield {
            "token": token(prefix, number), "id": f"order-{number}", "campaign": "autumn-sale" if number % 3 else "news",
            "enqueued_at": now - 2, "payload": {"aps": {"alert": {
                "title": f"Order {number}", "body": "Your parcel is on its way."}, "sound": "default"}}}
    for number in range(30):
        yield {"token": token("00fd", number), "id": f"reminder-{number}", "campaign": "reminders",
               "send_at": now + 3600 + 60 * number, "payload": {"aps": {"alert": "Your table is booked for tonight."}}}
    for number in range(6):
        yield {"token": token("00fe", number), "id": f"receipt-{number}", "campaign": "news", "payload": {
            "aps": {"alert": {"title": "Your receipt", "body": "Thank you for your order. " * 200}}}}


PUSHES = [
    {"id": "order-7", "alert": {"title": "Your order", "body": "It is on its way"}, "sound": "default", "badge": 2},
    {"id": "refresh-1", "push_type": "background", "payload": {"aps": {"content-available": 1}, "inbox": 12}},
    {"id": "match-3", "push_type": "liveactivity", "topic": "com.example.shop.push-type.liveactivity", "payload": {"aps": {
        "timestamp": 0, "event": "update", "content-state": {"home": 2, "away": 1, "minute": 67},
        "alert": {"title": "Goal", "body": "2:1 after 67 minutes"}}}},
    {"id": "reply-4", "alert": {"title": "Ada Lovelace", "subtitle": "Analytical engine", "body": "See you at seven?"},
     "interruption_level": "time-sensitive", "thread_id": "ada"},
]


def fill_hour(scene):
    """Repeats the minute of the load for the 59 minutes before it."""
    newest = max(one.decode() if isinstance(one, bytes) else one for one in scene.redis("KEYS", "push:{default}:minute:*"))
    fields = scene.redis("HGETALL", newest)
    pairs = list(fields.items()) if isinstance(fields, dict) else list(zip(fields[::2], fields[1::2]))
    prefix, minute = newest[:-16], time.strptime(newest[-16:], "%Y-%m-%dT%H:%M")
    for ago in range(1, 60):
        at = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(calendar.timegm(minute) - 60 * ago))
        share = 0.6 + 0.3 * math.sin(ago / 7) + 0.1 * math.sin(ago * 2.3)
        for name, value in pairs:
            scene.redis("HSET", prefix + at, name, round(float(value) * share))


CONFIGURATION = """apps:
  shop: {topic: com.example.shop}
  news: {topic: com.example.news}
"""
# The device whose timeline is shown: one push of each kind.
DEVICE = token("00fc", 0xada)


def history(now):
    """Yields the jobs of one device."""
    def push(name, body, **members):
        return {"token": DEVICE, "id": name, "app": "shop", "enqueued_at": now, "payload": {"aps": {"alert": body}}, **members}
    yield push("order-7", "Your parcel is on its way.", campaign="autumn-sale")
    yield push("order-8", "Your parcel has arrived.")
    yield push("receipt-8", "Thank you for your order. " * 200)
    yield push("reminder-8", "Your table is booked for tonight.", campaign="reminders", send_at=now + 3600)


def start(scene):
    """Starts the programs and creates the load; returns the addresses of the dashboard and of the inbox."""
    now = int(time.time())
    configuration = scene.directory / "worker.yaml"
    configuration.write_text(CONFIGURATION)
    scene.start_redis("--appendonly", "yes", "--maxmemory", "1gb", "--maxmemory-policy", "noeviction")
    scene.start_worker(
        "--config", str(configuration), "--simulate-rule", "prefix=0410,answer=410", "--simulate-rule", "prefix=0503,answer=503",
        "--simulate-rule", "prefix=0429,answer=429", "--simulate-rule", "prefix=0403,answer=InvalidProviderToken", "--retry-base",
        "1h", "--retry-cap", "1h", "--results", "all")
    _, inbox = scene.start_worker("--results", "all", "--topic", "com.example.shop", name="inbox", queue="inbox")
    _, address = scene.start_web("--config", str(configuration), queue="default,bulk")
    scene.push(*[{**one, "app": "shop"} for one in jobs(now)], *history(now))
    eventually("all are settled or wait", lambda: scene.redis("LLEN", "push:{default}:jobs") == 0
               and scene.redis("ZCARD", "push:{default}:dead") == 7)
    time.sleep(3)  # the worker's next heartbeat
    fill_hour(scene)
    # Problems: APNs refuses an app, and no worker claims from a queue.
    scene.push({"token": token("0403"), "app": "news", "payload": {"aps": {"alert": "The news of the day"}}})
    scene.push(*[{"token": token("00fc", number), "payload": {"aps": {"alert": "Good morning"}}} for number in range(40)],
               queue="bulk")
    # A campaign that is being sent.
    scene.redis("HSET", "push:{default}:campaign:winter-sale", "total", 4000)
    scene.run("campaign", "limit", "winter-sale", "--per-second", "50", "--force")
    scene.push(*[{"token": token("0410" if number % 50 == 0 else "00fc", number), "id": f"winter-{number}", "app": "shop",
                  "campaign": "winter-sale", "payload": {"aps": {"alert": {"title": "Winter sale", "body": "20 % off until Sunday"}}}}
                 for number in range(4000)])
    for number, one in enumerate(PUSHES):
        if "timestamp" in one.get("payload", {}).get("aps", {}):
            one["payload"]["aps"]["timestamp"] = now
        scene.push({"token": token("00fc", number), "enqueued_at": now, **one}, queue="inbox")
        eventually("it has arrived", lambda: len(get_json(inbox + "/notifications")["notifications"]) > number)
    return address, inbox


def main():
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    scene = Scene()
    try:
        address, inbox = start(scene)
        browser = Browser(address)
        try:
            def picture(name):
                eventually("the page is whole", lambda: browser.driver.execute_script("return document.readyState") == "complete")
                path = target / f"{name}.png"
                path.write_bytes(small(browser.driver.get_screenshot_as_png()))
                print(f"{path}: {path.stat().st_size // 1024} KiB")
            browser.open("/")
            browser.sees("news")
            browser.sees("winter-sale")
            picture("dashboard-overview")
            browser.set_dark(True)
            picture("dashboard-overview-dark")
            browser.set_dark(False)
            browser.driver.execute_script("document.querySelector('.chart').scrollIntoView({block: 'center'})")
            cursor = browser.one(".chart .cursor")
            browser.driver.execute_script("arguments[0].focus({preventScroll: true})", cursor)
            browser.type(*[Keys.ARROW_LEFT] * 12)
            picture("dashboard-charts")
            browser.resize(390, 844)
            browser.open("/")
            browser.sees("news")
            picture("dashboard-phone")
            browser.resize(1280, 900)
            browser.search("/jobs?state=retrying")
            browser.type(*["j", "x"] * 3)
            eventually("the selection is counted", lambda: "3 selected" in browser.one("[data-selected]").text)
            picture("dashboard-jobs")
            browser.open("/campaigns/winter-sale")
            picture("dashboard-campaign")
            browser.open("/devices/" + DEVICE)
            browser.sees("Timeline")
            picture("dashboard-device")
            browser.search("/dead?reason=PayloadTooLarge")
            browser.press(browser.one("tbody a[href*='/dead/default/']"))
            browser.sees("On a device")
            picture("dashboard-dead-letter")
            browser.open("/try")
            browser.sees("On a device")
            picture("dashboard-try-it")
            browser.base = inbox
            browser.open("/")
            browser.sees("Your order")
            picture("inbox")
            problems = browser.problems()
            if problems:
                raise SystemExit(f"messages in the console: {problems}")
        finally:
            browser.close()
    finally:
        scene.close()


def small(png):
    """Reduces a screenshot to 256 colours if Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        return png
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
