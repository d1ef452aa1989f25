"""Writes the pictures of the docs from a demo load."""

import io
import json
import sys
import time
from pathlib import Path

from browser import Browser
from scene import Scene, eventually, token


def jobs(now):
    """A mix of jobs as a shop has them."""
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


def main():
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    scene = Scene()
    try:
        scene.start_redis("--appendonly", "yes", "--maxmemory", "1gb", "--maxmemory-policy", "noeviction")
        scene.start_worker(
            "--simulate-rule", "prefix=0410,answer=410", "--simulate-rule", "prefix=0503,answer=503", "--simulate-rule",
            "prefix=0429,answer=429", "--retry-base", "1h", "--retry-cap", "1h", "--results", "all", "--topic",
            "com.example.shop")
        _, address = scene.start_web()
        scene.push(*jobs(int(time.time())))
        eventually("all are settled or wait", lambda: scene.redis("LLEN", "push:{default}:jobs") == 0
                   and scene.redis("ZCARD", "push:{default}:dead") == 6, 120)
        time.sleep(3)  # the worker's next heartbeat
        browser = Browser(address)
        try:
            def picture(name):
                eventually("the page is whole", lambda: browser.driver.execute_script("return document.readyState") == "complete")
                path = target / f"dashboard-{name}.png"
                path.write_bytes(small(browser.driver.get_screenshot_as_png()))
                print(f"{path}: {path.stat().st_size // 1024} KiB")
            browser.open("/")
            picture("overview")
            browser.open("/jobs?state=retrying")
            picture("jobs")
            browser.open("/dead?reason=PayloadTooLarge")
            browser.press(browser.one("tbody a[href*='/dead/default/']"))
            browser.sees("On a device")
            picture("dead-letter")
            browser.open("/try")
            browser.sees("On a device")
            picture("try-it")
            problems = browser.problems()
            if problems:
                raise SystemExit(f"messages in the console: {problems}")
        finally:
            browser.close()
    finally:
        scene.close()


def small(png):
    """Reduces a picture to 256 colours if Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        return png
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(out, "PNG", optimize=True)
    return out.getvalue()


main()
