"""Clicks through the pages of the dashboard on a live queue and checks them."""

import json
import os
import re
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from browser import Browser
from scene import LIMIT, Scene, eventually, get_json, notifications, token

HOSTILE = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "'\"`</textarea></title><svg onload=alert(1)>",
    "\u202egnp.evil\u2066", "javascript:alert(1)", "{{name}} ${7*7} %3Cscript%3E &lt;b&gt;",
]


def job(prefix, number=0, **members):
    return {"token": token(prefix, number), "payload": {"aps": {"alert": f"job {number}"}}, **members}


def hostile(index, text, **members):
    return {
        "token": token("ee", index), "id": text, "campaign": text, "app": text, "topic": text, "collapse_id": text,
        "payload": {"aps": {"alert": {"title": text, "subtitle": text, "body": text}, "category": text}, text: text},
        **members}


SECTIONS = ["Overview", "Queues", "Jobs", "Campaigns", "Dead letters", "Device", "Invalid tokens", "Apps", "Workers",
            "Redis", "Activity", "Try it"]
# The pages that exist without data.
EMPTY = ["/", "/queues", "/queues/default", "/jobs", "/campaigns", "/dead", "/devices", "/invalid", "/apps", "/workers", "/redis",
         "/activity", "/try", "/search?q=absent"]


def inbox_pages(test):
    """Sends a push of each kind, opens the inbox, and returns the path of each of its views."""
    test.browser.base = test.control
    test.scene.push(
        job("aa", 900, id="inbox-plain"), job("503", 900, id="inbox-refused"),
        {"token": token("aa", 1), "push_type": "liveactivity", "topic": "com.example.app.push-type.liveactivity",
         "payload": {"aps": {"timestamp": int(time.time()), "event": "update", "content-state": {"home": 2},
                             "alert": {"title": "Goal", "body": "2:1"}}}})
    test.browser.open("/")
    test.browser.sees("Goal")

    def links(css):
        found = [one.get_attribute("href") for one in test.browser.all(css)]
        return [one[len(test.control):] for one in found if one and one.startswith(test.control)]
    return list(dict.fromkeys(["/", *links("main .tabs a"), *links("main a[href*='/inbox/']")[:2], "/?text=absent"]))


class Live(unittest.TestCase):
    """A scene and a browser that all tests of a class share."""

    queues = "default,other"

    @classmethod
    def setUpClass(cls):
        cls.scene = Scene()
        cls.addClassCleanup(cls.scene.close)
        cls.scene.start_redis()
        cls.worker, cls.control = cls.scene.start_worker(
            "--simulate-rule", "prefix=410,answer=410",
            "--simulate-rule", "prefix=503,answer=503", "--retry-base", "1h", "--retry-cap", "1h", "--results", "all",
            "--lease", "7s")
        cls.web, cls.address = cls.scene.start_web(queue=cls.queues)
        cls.fill()
        cls.browser = Browser(cls.address)
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def fill(cls):
        scene, later = cls.scene, int(time.time()) + 3600
        scene.push(*[job("aa", n, campaign="spring", id=f"good-{n}") for n in range(20)])
        scene.push(*[job("dead", n, payload={"aps": {"alert": "x" * 5000}}) for n in range(4)])
        scene.push(*[job("410", n) for n in range(3)])
        scene.push(*[job("503", n, id=f"retry-{n}") for n in range(4)])
        scene.push(*[job("cc", n, id=f"later-{n}", campaign="autumn", send_at=later) for n in range(70)])
        # Jobs of an unknown app become dead letters; jobs on a queue without a worker wait.
        scene.push(*[hostile(n, text) for n, text in enumerate(HOSTILE)])
        scene.push(*[hostile(n + 100, text) for n, text in enumerate(HOSTILE)], "no JSON <script>alert(1)</script>",
                   queue="other")
        eventually("the worker has settled the jobs", lambda: scene.redis("LLEN", "push:{default}:jobs") == 0)
        eventually("dead letters", lambda: scene.redis("ZCARD", "push:{default}:dead") >= 4 + len(HOSTILE))
        eventually("invalid tokens", lambda: scene.redis("SCARD", "push:{shared}:invalid-tokens") == 3)

    def tearDown(self):
        self.assertEqual(self.browser.problems(), [], "console messages and refusals")

    def keys(self, path, css):
        """Returns the targets of links on a page."""
        self.browser.search(path)
        return [one.get_attribute("href")[len(self.address):] for one in self.browser.all(css)]

    def run_page(self):
        """Counts a change, and returns the path of the page that asks for its confirmation."""
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(self.address + "/try", timeout=LIMIT) as answer:
            page = answer.read().decode()
        secret = re.search(r'name="form_token" value="([0-9a-f]+)"', page).group(1)
        fields = {"form_token": secret, "action": "discard", "queue": "default", "id": "later-0"}
        request = urllib.request.Request(
            self.address + "/actions/change-jobs", urllib.parse.urlencode(fields).encode(), {"Origin": self.address})
        with opener.open(request, timeout=LIMIT) as answer:
            return answer.url[len(self.address):]

    def worker_name(self):
        """Returns the name of a worker, without the number of its lane."""
        lane = eventually("a heartbeat", lambda: self.scene.redis("ZRANGE", "push:{default}:workers", 0, -1))[0]
        return lane.rpartition(".")[0]

    def pages(self):
        """Returns the path of each page with its title."""
        job_page = self.keys("/jobs?state=scheduled&queue=default", "tbody a[href*='/jobs/default/']")[0]
        hostile_job = self.keys("/jobs?queue=other", "tbody a[href*='/jobs/other/']")[0]
        dead = self.keys("/dead?queue=default&reason=PayloadTooLarge", "tbody a[href*='/dead/default/']")[0]
        hostile_dead = self.keys("/dead?queue=default&reason=Unknown*", "tbody a[href*='/dead/default/']")[0]
        return {
            "/": "Overview", "/?span=day": "Overview", "/?span=days": "Overview", "/queues": "Queues",
            "/apps/default": "", "/workers/" + urllib.parse.quote(self.worker_name(), safe=""): "", self.run_page(): "",
            "/search": "Search", "/search?q=e": "Search", "/search?q=absent": "Search", "/styles": "Styles",
            "/queues/default": "Queue default", "/queues/other": "Queue other", "/jobs": "Jobs",
            "/jobs?state=retrying": "Jobs", job_page: "Job ", hostile_job: "Job ", "/devices": "Device",
            f"/devices/{token('410', 0)}": "Device 4100", "/campaigns": "Campaigns", "/campaigns/spring": "Campaign spring",
            "/campaigns/" + urllib.parse.quote(HOSTILE[1], safe=""): "Campaign ", "/dead": "Dead letters", dead: "Dead letter ",
            hostile_dead: "Dead letter ", "/apps": "Apps", "/invalid": "Invalid tokens", "/workers": "Workers",
            "/redis": "Redis", "/try": "Try it", "/activity": "Activity", "/no-such-page": "404",
        }


class Pages(Live):
    def test_each_page_opens_without_a_message_in_the_console(self):
        for path, title in self.pages().items():
            with self.subTest(path):
                self.browser.open(path)
                self.assertTrue(self.browser.title.startswith(title), self.browser.title)
                found = [one for one in self.browser.problems() if "404 (Not Found)" not in one or title != "404"]
                self.assertEqual(found, [])

    def test_navigation_leads_to_each_section_and_marks_it(self):
        self.browser.open("/")
        links = "nav[aria-label=Pages] a"

        def name(link):
            return self.browser.driver.execute_script("return arguments[0].firstChild.textContent.trim()", link)
        self.assertEqual([name(one) for one in self.browser.all(links)], SECTIONS)
        self.assertEqual([one.text.capitalize() for one in self.browser.all("nav[aria-label=Pages] p")],
                         ["Now", "Work", "Delivery", "Fleet", "Tools"])
        for index, section in enumerate(SECTIONS):
            self.browser.press(self.browser.all(links)[index])
            self.assertEqual([name(one) for one in self.browser.all("nav[aria-label=Pages] [aria-current=page]")], [section])

    def test_the_navigation_of_a_narrow_window_is_a_menu(self):
        self.browser.resize(390, 844)
        self.addCleanup(self.browser.resize, 1280, 900)
        self.browser.open("/")
        self.assertEqual([one for one in self.browser.all("nav[aria-label=Pages] a") if one.is_displayed()], [])
        self.browser.one("details.menu > summary").click()
        self.browser.press(self.browser.all("nav[aria-label=Pages] a")[2])
        self.assertEqual(self.browser.title, "Jobs")
        self.browser.one("details.menu > summary").click()
        self.browser.type(Keys.ESCAPE)
        eventually("Escape closes the menu", lambda: not self.browser.all("details.menu[open]"))

    def test_the_search_leads_to_what_a_text_names(self):
        for text, title in (("spring", "Campaign spring"), (token("410", 0), "Device 4100"), (token("410", 0)[:8], "Device"),
                            ("later-7", "Job "), ("other", "Queue other"), (self.worker_name(), "")):
            with self.subTest(text):
                self.browser.open("/jobs")
                self.browser.one("#search").send_keys(text)
                old = self.browser.one("html").id
                self.browser.type(Keys.ENTER)
                self.browser.arrive(old)
                self.assertTrue(self.browser.title.startswith(title), self.browser.title)
                self.assertNotEqual(self.browser.title, "Search")
        self.browser.open("/search?q=sprng-that-is-absent")
        self.browser.sees("sprng-that-is-absent")
        self.assertEqual(self.browser.one("#search").get_attribute("value"), "sprng-that-is-absent")

    def test_the_icon_shows_the_number_of_problems(self):
        def icon():
            return self.browser.one("link[rel=icon]").get_attribute("href")
        # Jobs wait on the queue other, which has no worker.
        self.browser.open("/")
        number = eventually("a problem is counted", lambda: (found := re.search(r"/icon-(\d+)\.svg$", icon())) and int(found.group(1)))
        self.assertEqual(self.browser.one("nav[aria-label=Pages] .count").text, str(number))
        with urllib.request.urlopen(icon(), timeout=LIMIT) as answer:
            self.assertIn(f">{number}</text>", answer.read().decode())

    def test_the_choice_of_colours_is_kept(self):
        def background():
            return self.browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")

        def choose(theme):
            self.browser.press(self.browser.one(f"form.theme button[value={theme}]"))
            self.assertEqual(self.browser.title, "Jobs")
            pressed = self.browser.all("form.theme button[aria-pressed=true]")
            self.assertEqual([one.get_attribute("value") for one in pressed], [theme])
            return background()
        self.addCleanup(self.browser.driver.delete_all_cookies)
        self.browser.open("/jobs?state=retrying")
        system = background()
        dark = choose("dark")
        self.assertNotEqual(dark, system)
        self.assertIn("state=retrying", self.browser.driver.current_url)
        self.browser.open("/queues")
        self.assertEqual(self.browser.one("html").get_attribute("data-theme"), "dark")
        self.assertEqual(background(), dark)
        self.browser.open("/jobs")
        self.browser.set_dark(True)
        self.addCleanup(self.browser.set_dark, False)
        self.assertEqual(choose("light"), system)
        self.assertEqual(choose("system"), dark)
        self.assertIsNone(self.browser.one("html").get_attribute("data-theme"))

    def test_a_button_copies_a_command(self):
        self.browser.driver.execute_cdp_cmd("Browser.grantPermissions", {
            "origin": self.address, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.browser.open("/styles")
        button = [one for one in self.browser.all("button[data-copy]") if one.is_displayed()][0]
        command = self.browser.driver.execute_script("return arguments[0].parentElement.querySelector('code').textContent", button)
        button.click()
        eventually("the button answers", lambda: button.text in ("Copied", "Selected"))
        if button.text == "Copied":
            self.assertEqual(self.browser.driver.execute_async_script(
                "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"), command)
        else:
            self.assertEqual(self.browser.driver.execute_script("return getSelection().toString()"), command)

    def test_markup_of_jobs_shows_as_text(self):
        for text in HOSTILE:
            with self.subTest(text):
                self.browser.open("/campaigns/" + urllib.parse.quote(text, safe=""))
                self.assertEqual(self.browser.all("main script, main img, main svg[onload], main b"), [])
        for path in ("/jobs?queue=other", "/dead", *self.keys("/jobs?queue=other", "tbody a[href*='/jobs/other/']"),
                     *self.keys("/dead?reason=Unknown*", "tbody a[href*='/dead/default/']")):
            with self.subTest(path):
                self.browser.search(path)
                self.assertEqual(self.browser.all("main script, main img, main svg[onload], [onerror], [onload]"), [])
                self.assertEqual(self.browser.all("a[href^='javascript:']"), [])
                self.assertNotIn("\u202e", self.browser.text)
        self.browser.search("/jobs?queue=other&match=alert(1)")
        self.assertIn("<script>alert(1)</script>", self.browser.text)
        self.assertIn("\"><img src=x onerror=alert(1)>", self.browser.text)

    def test_filters_and_pages_of_jobs(self):
        pages = [[one.get_attribute("value") for one in self.browser.all("tbody input[name=key]")]
                 for _ in self.browser.pages("/jobs?queue=default&state=scheduled")]
        self.assertTrue(all(len(keys) <= 50 for keys in pages))
        self.assertEqual((sum(map(len, pages)), len(set().union(*pages))), (70, 70))
        self.browser.open("/jobs")
        form = self.browser.one("form.filters")
        self.browser.fill(form, "id", "later-7")
        self.browser.press(form.find_element("css selector", "button"))
        rows = [row.text for _ in self.browser.pages() for row in self.browser.all("tbody tr")]
        self.assertEqual(["later-7 " in row for row in rows], [True])
        self.browser.open("/jobs?since=soon")
        self.assertIn("must be a duration ago", self.browser.text)
        self.assertTrue(any("400" in one for one in self.browser.problems()))

    def test_a_cursor_that_no_page_had_is_a_mistake_of_the_request(self):
        self.browser.open("/jobs")
        for path in ["jobs?place=retry&after=default|retry@x", "jobs?after=default|list@x", "dead-letters?after=default|x",
                     "dead-letters?after=default|cancelled%20x"]:
            with self.subTest(path), self.assertRaises(urllib.error.HTTPError) as refused:
                get_json(f"{self.address}/api/v1/{path}")
            self.assertEqual(refused.exception.code, 400)
            self.assertIn("must be from an earlier page", refused.exception.read().decode())
            refused.exception.close()

    def test_dark_colours(self):
        def background():
            return self.browser.driver.execute_script("""
                const parts = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
                return parts.slice(0, 3).reduce((sum, one) => sum + one) / 3""")
        self.browser.open("/")
        self.assertGreater(background(), 200)
        self.browser.set_dark(True)
        self.addCleanup(self.browser.set_dark, False)
        self.assertLess(background(), 60)

    def test_keyboard_reaches_every_control(self):
        for path in ("/", "/jobs?queue=default&state=retrying", "/invalid", "/workers", "/try"):
            with self.subTest(path):
                self.browser.open(path)
                reached = []
                for step in range(200):
                    # To the page: the focused element may be replaced by an update at any time.
                    ActionChains(self.browser.driver).send_keys(Keys.TAB).perform()
                    found = self.browser.driver.execute_script("""
                        const one = document.activeElement;
                        if (one === document.body) return null;
                        return [one.matches(".skip"), [...document.querySelectorAll("*")].indexOf(one), one.checkVisibility()
                          && (getComputedStyle(one).outlineStyle !== "none" || getComputedStyle(one).boxShadow !== "none")]""")
                    if not found or (reached and found[1] == reached[0][1]):
                        break
                    reached.append(found)
                self.assertTrue(reached[0][0], "the first tab stop is the skip link")
                self.assertEqual([one for one in reached if not one[2]], [], "each tab stop shows its focus")
                missed = self.browser.driver.execute_script("""
                    const reached = new Set(arguments[0]), all = [...document.querySelectorAll("*")];
                    const groups = new Set(all.filter((one, i) => reached.has(i) && one.type === "radio").map((one) => one.name));
                    return all.filter((one, i) => one.matches("a[href], button, input:not([type=hidden]), select, textarea, summary")
                        && !reached.has(i) && one.checkVisibility() && !(one.type === "radio" && groups.has(one.name)))
                      .map((one) => one.outerHTML.slice(0, 120))""", [one[1] for one in reached])
                self.assertEqual(missed, [])
        self.browser.open("/jobs")
        self.browser.driver.switch_to.active_element.send_keys("\ue004")
        self.browser.driver.switch_to.active_element.send_keys("\ue007")
        eventually("the skip link moves the focus", lambda: self.browser.driver.execute_script(
            "return document.activeElement.id") == "main")

    def test_pages_can_be_read_without_scripts(self):
        plain = Browser(self.address, scripts=False)
        self.addCleanup(plain.close)
        for path, title in self.pages().items():
            with self.subTest(path):
                plain.open(path)
                self.assertTrue(plain.title.startswith(title), plain.title)
        plain.search("/jobs?state=retrying")
        self.assertIn("retry-1", plain.text)
        self.assertIn("ServiceUnavailable", plain.text)


class Updates(Live):
    def test_a_page_shows_a_change_without_a_reload_and_rests_while_it_is_hidden(self):
        self.browser.open("/queues/other")
        self.browser.driver.execute_script("window.isSamePage = true")

        def waiting():
            return self.browser.driver.execute_script("""
                const names = [...document.querySelectorAll("dt")];
                return names.find((one) => one.textContent === "Waiting").nextElementSibling.textContent""")
        before = int(waiting())
        self.scene.push(job("ab", 1), queue="other")
        eventually("the new job is counted", lambda: waiting() == str(before + 1))
        self.assertTrue(self.browser.driver.execute_script("return window.isSamePage"))
        first = self.browser.driver.current_window_handle
        self.browser.driver.execute_script("""
            Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? false, configurable: true });
            window.isHidden = true; document.dispatchEvent(new Event("visibilitychange"))""")
        eventually("updates are paused", lambda: "Paused" in self.browser.one("#live-state").text)
        self.scene.push(job("ab", 2), queue="other")
        time.sleep(5)  # two updates later
        self.assertEqual(waiting(), str(before + 1))
        self.browser.driver.execute_script("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
        eventually("it catches up", lambda: waiting() == str(before + 2))
        self.assertEqual(self.browser.driver.current_window_handle, first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
