"""Uses the inbox in Chromium while jobs arrive. Exits with 0 if everything is as expected.

Each step prints a line. Errors in the browser's console, including violations of the content security policy, are failures.
"""

import argparse
import json
import sys
import time

import redis
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

arguments = argparse.ArgumentParser()
arguments.add_argument("--inbox", required=True)
arguments.add_argument("--redis", type=int, required=True)
arguments.add_argument("--profile", required=True, help="a directory for the browser's files")
arguments.add_argument("--screenshots", help="a directory")
arguments = arguments.parse_args()

queue = redis.Redis(port=arguments.redis)
options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
for option in [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--no-proxy-server", "--window-size=1200,1400", f"--user-data-dir={arguments.profile}",
]:
    options.add_argument(option)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


def push(token, **members):
    members = members or {"alert": f"Hello {token[:4]}"}
    queue.rpush("push:{default}:jobs", json.dumps({"token": token, **members}))


def token(digits):
    return digits + "0" * (64 - len(digits))


def rows():
    return [row.text for row in driver.find_elements(By.CSS_SELECTOR, ".pushes > li")]


def eventually(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                print("ok", what, flush=True)
                return
        except Exception as error:  # the page can change between two reads
            last = error
        else:
            last = None
        if time.monotonic() > end:
            print(driver.find_element(By.TAG_NAME, "body").text[:4000])
            raise SystemExit(f"not in time: {what} ({last})")
        time.sleep(0.05)


def screenshot(name):
    if arguments.screenshots:
        driver.save_screenshot(f"{arguments.screenshots}/{name}.png")


def count(digits, words):
    return sum(1 for row in rows() if token(digits)[:16] in row and words in row)


def click(find):
    """Clicks an element, and finds it again if the page was updated in between."""
    end = time.monotonic() + 30
    while True:
        try:
            find().click()
            return
        except (StaleElementReferenceException, NoSuchElementException):
            if time.monotonic() > end:
                raise


def press(digits, title):
    """Opens the newest push for a token in the preview, and presses one of its buttons."""
    click(lambda: driver.find_element(
        By.XPATH, f"//ol[@data-rows]/li[.//a[starts-with(normalize-space(), '{token(digits)[:16]}')]]/a[@class='subject']"))

    def button():
        preview = driver.find_element(By.XPATH, f"//aside[.//a[starts-with(normalize-space(), '{token(digits)[:16]}')]]")
        details = preview.find_element(By.TAG_NAME, "details")
        if not details.get_attribute("open"):
            details.find_element(By.TAG_NAME, "summary").click()
        return preview.find_element(By.XPATH, f".//button[normalize-space()='{title}']")

    click(button)


def run():
    driver.get(arguments.inbox)
    driver.execute_script("window.isTheSame = true")
    eventually("the inbox is empty", lambda: "Nothing was received yet." in driver.page_source)
    eventually("the page is live", lambda: "Live." in driver.find_element(By.ID, "live-state").text)
    push(token("aa"), alert={"title": "<img src=x onerror=alert(1)>", "body": "It is <b>on its way</b>"}, badge=3)
    eventually("a push appears", lambda: count("aa", "It is <b>on its way</b>") == 1)
    eventually("markup is text", lambda: "<img src=x onerror=alert(1)>" in rows()[0])
    assert not driver.find_elements(By.CSS_SELECTOR, "main img, main script, .banner b")
    assert driver.execute_script("return window.isTheSame"), "the page was loaded again"
    push(token("ab"), event="update", content_state={"driver": "Anne", "minutes": 7})
    push(token("ac"), content_available=True)
    eventually("a Live Activity appears", lambda: count("ab", "driver Anne · minutes 7") == 1)
    eventually("a silent push appears", lambda: count("ac", "background") == 1)
    eventually("the newest is in the preview", lambda: driver.find_element(By.CSS_SELECTOR, ".preview .banner.silent"))

    # The details stay open while the list changes.
    click(lambda: driver.find_element(By.CSS_SELECTOR, "#push-1 a.subject"))
    click(lambda: driver.find_element(By.CSS_SELECTOR, "#next-1 summary"))
    push(token("ad"))
    eventually("another push appears", lambda: count("ad", "200") == 1)
    eventually("the buttons stay open", lambda: driver.find_element(By.ID, "next-1").get_attribute("open"))
    screenshot("inbox")

    answers = [
        ("410 Unregistered", "410 Unregistered"), ("429 TooManyRequests", "429 TooManyRequests"),
        ("503 ServiceUnavailable", "503 ServiceUnavailable"), ("after 5 s", "answered after 5.0 s"),
        ("no answer", "no answer"), ("connection lost", "connection lost, but accepted"),
    ]
    for number, (title, words) in enumerate(answers):
        digits = f"b{number}"
        push(token(digits))
        eventually(f"{digits} appears", lambda: count(digits, "200") == 1)
        press(digits, title)
        eventually("the rule appears", lambda: f"prefix={token(digits)},times=1" in driver.page_source)
        push(token("c0"), alert=f"Other {number}")
        eventually("another token is answered 200", lambda: any(f"Other {number}" in row and "200" in row for row in rows()))
        push(token(digits))
        eventually(f"the answer is {title}", lambda: count(digits, words) == 1)
        eventually("the rule is gone", lambda: f"prefix={token(digits)},times=1" not in driver.page_source)
    eventually("a 503 is tried again", lambda: count("b2", "attempt 2") >= 1)

    press("b3", "503 ServiceUnavailable")
    eventually("the rule appears", lambda: "answer=503</code>" in driver.page_source)
    click(lambda: driver.find_element(By.CSS_SELECTOR, "#rules button"))
    eventually("the rule is removed", lambda: "No rules" in driver.page_source)

    field = driver.find_element(By.NAME, "token")
    field.send_keys("b2")
    field.submit()
    eventually("a search finds one token", lambda: rows() and all("b200" in row for row in rows()))
    eventually("it has buttons", lambda: driver.find_element(By.CSS_SELECTOR, "#tools button"))
    click(lambda: driver.find_element(By.PARTIAL_LINK_TEXT, "No. "))
    eventually("a push has a page", lambda: "apns-push-type" in driver.find_element(By.TAG_NAME, "main").text)
    main = driver.find_element(By.TAG_NAME, "main").text
    for part in ["Attempts", "Headers", token("b2"), '"alert": "Hello b200"', "this one"]:
        assert part in main, part
    screenshot("push")
    click(lambda: driver.find_element(By.XPATH, "//*[@id='next']//button[normalize-space()='429 TooManyRequests']"))
    eventually("a button leads back to the push", lambda: "/inbox/" in driver.current_url and "answer=429" in driver.page_source)
    click(lambda: driver.find_element(By.XPATH, "//*[@id='next']//button[normalize-space()='Undo']"))
    eventually("it is undone", lambda: "No rules" in driver.page_source)

    driver.get(arguments.inbox)
    eventually("the inbox is shown", lambda: len(rows()) > 5)
    click(lambda: driver.find_element(By.XPATH, "//button[normalize-space()='Clear the list']"))
    eventually("the list is cleared", lambda: "Nothing was received yet." in driver.page_source)


try:
    run()
    problems = [entry for entry in driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]
    if problems:
        sys.exit(f"the browser's console: {problems}")
finally:
    driver.quit()
