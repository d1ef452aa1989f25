"""Clicks through the pages of the dashboard on a live queue and checks them."""

import json
import signal
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
# Identifies a control before and after an update.
KEY = """const key = (one) => one.getAttribute("href") ?? one.getAttribute("aria-label")
  ?? `${one.tagName} ${one.name} ${one.value} ${one.form?.action} ${one.textContent.trim()}`;"""
OUTCOMES = '.chart[data-chart^="Notifications by outcome"]'
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
    """A scene that all tests of a class share, and a browser that all classes of a module share."""

    queues = "default,other"
    started = None

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
        if Live.started is None:
            Live.started = Browser(cls.address)
            unittest.addModuleCleanup(Live.end_browser)
        cls.browser = Live.started
        cls.browser.base = cls.address
        cls.addClassCleanup(cls.leave)

    @classmethod
    def leave(cls):
        """Resets the browser, and leaves its page before the servers of the page end."""
        cls.browser.open("about:blank", "")
        cls.browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        cls.browser.resize(1280, 900)
        cls.browser.set_dark(False)
        cls.browser.problems()

    @staticmethod
    def end_browser():
        Live.started.close()
        Live.started = None

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
            "/": "Overview", "/?span=15m": "Overview", "/?span=24h": "Overview", "/?span=40d": "Overview", "/queues": "Queues",
            "/apps/default": "App default", "/workers/" + urllib.parse.quote(self.worker_name(), safe=""): "Worker ",
            self.run_page(): "Confirm a change",
            "/search": "Search", "/search?q=e": "Search", "/search?q=absent": "Search",
            "/queues/default": "Queue default", "/queues/other": "Queue other", "/jobs": "Jobs",
            "/jobs?state=retrying": "Jobs", job_page: "Job ", hostile_job: "Job ", "/devices": "Device",
            f"/devices/{token('410', 0)}": "Device 4100", "/campaigns": "Campaigns", "/campaigns/spring": "Campaign spring",
            "/campaigns/" + urllib.parse.quote(HOSTILE[1], safe=""): "Campaign ", "/dead": "Dead letters", dead: "Dead letter ",
            hostile_dead: "Dead letter ", "/apps": "Apps", "/invalid": "Invalid tokens", "/workers": "Workers",
            "/redis": "Redis", "/try": "Try it", "/activity": "Activity", "/no-such-page": "404",
        }


class Pages(Live):
    def test_a_mistake_in_a_search_is_shown_with_its_form(self):
        for path in ("/activity?action=explode", "/activity?result=maybe", "/jobs?limit=1&state=lost", "/dead?since=soon",
                     "/devices?token=zz", "/devices/00fc13"):
            with self.subTest(path):
                request = urllib.request.Request(self.address + path)
                with self.assertRaises(urllib.error.HTTPError) as refusal:
                    urllib.request.urlopen(request, timeout=LIMIT)
                page = refusal.exception.read().decode()
                self.assertEqual(refusal.exception.code, 400)
                self.assertIn('role="alert"', page)
                self.assertIn("<form class=\"filters", page)

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
        self.assertEqual(self.browser.shown("nav[aria-label=Pages] a"), [])
        self.browser.one(".menu-button").click()
        self.browser.press(self.browser.all("nav[aria-label=Pages] a")[2])
        self.assertEqual(self.browser.title, "Jobs")
        self.browser.one(".menu-button").click()
        self.browser.type(Keys.ESCAPE)
        eventually("Escape closes the menu", lambda: not self.browser.all("#menu:popover-open"))

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
        # The numbers in both places change when problems begin and end.
        number = eventually("a problem is counted in both places", lambda: (found := re.search(r"/icon-(\d+)\.svg$", icon()))
                            and self.browser.one("nav[aria-label=Pages] .count").text == found.group(1) and int(found.group(1)))
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
        self.browser.open(f"/devices/{token('410', 0)}")
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
        self.assertEqual([re.search(r"\blater-7\b", row) is not None for row in rows], [True])
        self.browser.open("/jobs?since=soon")
        self.assertIn("must be a duration ago", self.browser.text)
        self.assertTrue(any("400" in one for one in self.browser.problems()))

    def test_a_cursor_that_no_page_had_is_a_mistake_of_the_request(self):
        self.browser.open("/jobs")
        for path in ["jobs?state=retrying&after=default|retry@x", "jobs?after=default|list@x", "dead-letters?after=default|x",
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
                self.browser.driver.execute_script(KEY + """
                    window.reached = [];
                    addEventListener("focusin", ({ target: one }) => reached.push([one.matches(".skip"), key(one), one.checkVisibility()
                      && (getComputedStyle(one).outlineStyle !== "none" || getComputedStyle(one).boxShadow !== "none")]))""")
                for _ in range(40):
                    # To the page: the focused element may be replaced by an update at any time.
                    self.browser.type(Keys.TAB * 10)
                    reached = self.browser.driver.execute_script("return reached")
                    skips = [place for place, one in enumerate(reached) if one[0]]
                    if len(skips) > 1:
                        reached = reached[:skips[1]]
                        break
                self.assertTrue(reached[0][0], "the first tab stop is the skip link")
                self.assertEqual([one for one in reached if not one[2]], [], "each tab stop shows its focus")
                missed = self.browser.driver.execute_script(KEY + """
                    const reached = new Set(arguments[0]), all = [...document.querySelectorAll("*")];
                    const groups = new Set(all.filter((one) => reached.has(key(one)) && one.type === "radio").map((one) => one.name));
                    // The bars of charts are links for the pointer; their table has the same ones.
                    return all.filter((one) => one.matches("a[href], button, input:not([type=hidden]), select, textarea, summary")
                        && !one.matches("svg *, :disabled") && !reached.has(key(one)) && one.checkVisibility()
                        && !(one.type === "radio" && groups.has(one.name)))
                      .map((one) => one.outerHTML.slice(0, 120))""", [one[1] for one in reached])
                self.assertEqual(missed, [])
        self.browser.open("/jobs")
        self.browser.driver.switch_to.active_element.send_keys("\ue004")
        self.browser.driver.switch_to.active_element.send_keys("\ue007")
        eventually("the skip link moves the focus", lambda: self.browser.driver.execute_script(
            "return document.activeElement.id") == "main")

    def test_pages_can_be_read_without_scripts(self):
        for path, title in self.pages().items():
            with self.subTest(path):
                try:
                    answer = urllib.request.urlopen(self.address + path, timeout=LIMIT)
                except urllib.error.HTTPError as refusal:
                    answer = refusal
                with answer:
                    heading = re.search(r"<h1\b.*?</h1>", answer.read().decode(), re.DOTALL).group()
                self.assertTrue(re.sub("<[^>]*>", "", heading).strip().startswith(title.strip()), heading)
        with self.browser.without_scripts():
            for path, title in (("/", "Overview"), ("/queues/default", "Queue default"), ("/no-such-page", "404")):
                with self.subTest(path):
                    self.browser.open(path)
                    self.assertTrue(self.browser.title.startswith(title), self.browser.title)
            self.browser.search("/jobs?state=retrying")
            self.assertIn("retry-1", self.browser.text)
            self.assertIn("ServiceUnavailable", self.browser.text)

    # Problems and lists

    def test_the_most_severe_is_first_and_each_says_what_to_do(self):
        self.browser.open("/")
        # Jobs wait on the queue other, which has no worker.
        eventually("the problem is shown", lambda: "other" in self.browser.one("#problems").text)
        found = self.browser.all("#problems .card, #problems .problem")
        tones = ["bad" in one.get_attribute("class").split() for one in found]
        self.assertEqual(tones, sorted(tones, reverse=True))
        text = self.browser.one("#problems").text
        self.assertNotIn("`", text)
        self.assertTrue(self.browser.all("#problems a[href*='/queues/other']"), text)
        self.assertTrue(self.browser.shown("#problems .command button"))

    def rows(self):
        return [one.get_attribute("value") for one in self.browser.all("tbody input[name=key]")]

    def test_tabs_count_the_jobs_of_each_state(self):
        def read():
            self.browser.open("/jobs?queue=default")
            found = dict(re.findall(r"([A-Z][a-z]+)\s+([\d,]+)", self.browser.one("nav.tabs[aria-label=States]").text))
            return found if (found["Scheduled"], found["Retrying"], found["Waiting"]) == ("70", "4", "0") else None
        counts = eventually("the status has all jobs", read)
        self.assertEqual(int(counts["All"]), sum(int(count) for name, count in counts.items() if name != "All"))
        self.browser.press([one for one in self.browser.all("nav.tabs a") if one.text.startswith("Retrying")][0])
        self.assertIn("state=retrying", self.browser.driver.current_url)
        self.assertIn("queue=default", self.browser.driver.current_url)
        self.assertTrue(self.browser.one("nav.tabs a[aria-current]").text.startswith("Retrying"))

    def test_pages_lead_on_and_back(self):
        self.browser.open("/jobs?queue=default&state=scheduled")
        first = self.rows()
        self.assertEqual(len(first), 50)
        self.assertIn("1–50 of 70 jobs", self.browser.text)
        self.assertEqual(self.browser.all("a[rel=prev]"), [])
        self.browser.press(self.browser.one("a[rel=next]"))
        second = self.rows()
        self.assertEqual((len(second), set(first) & set(second)), (20, set()))
        self.assertIn("51–70 of 70 jobs", self.browser.text)
        self.assertEqual(self.browser.all("a[rel=next]"), [])
        self.browser.press(self.browser.one("a[rel=prev]"))
        self.assertEqual(self.rows(), first)

    def test_the_title_of_a_column_reverses_the_order(self):
        for path, column in (("/jobs?queue=default&state=retrying", "Next attempt"), ("/dead?queue=default", "Time")):
            with self.subTest(path):
                self.browser.search(path)
                before = self.rows()
                self.assertGreater(len(before), 2)
                order = self.browser.one("th[aria-sort]").get_attribute("aria-sort")
                link = self.browser.one("th[aria-sort] a")
                self.assertEqual(link.text.strip(), column)
                self.browser.press(link)
                self.assertEqual(self.rows(), before[::-1])
                self.assertNotEqual(self.browser.one("th[aria-sort]").get_attribute("aria-sort"), order)

    def test_filters_are_offered_and_removed(self):
        self.browser.open("/jobs?queue=default")
        field = self.browser.one("form.filters [name=campaign]")
        offered = [one.get_attribute("value") for one in self.browser.all(f"#{field.get_attribute('list')} option")]
        self.assertIn("spring", offered)
        field.send_keys("autumn")
        self.browser.press(self.browser.one("form.filters button.main"))
        chips = self.browser.all(".chips .chip")
        self.assertEqual(len(chips), 2, [one.text for one in chips])
        self.assertIn("campaign=autumn", self.browser.driver.current_url)
        self.browser.press([one for one in chips if "autumn" in one.text][0])
        self.assertNotIn("autumn", self.browser.driver.current_url)
        self.assertIn("queue=default", self.browser.driver.current_url)

    def test_shift_click_selects_a_range(self):
        self.browser.search("/jobs?queue=default&state=scheduled")
        boxes = self.browser.all("tbody input[type=checkbox]")
        boxes[1].click()
        self.browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", boxes[5])
        ActionChains(self.browser.driver).key_down(Keys.SHIFT).click(boxes[5]).key_up(Keys.SHIFT).perform()
        self.assertEqual([one.is_selected() for one in boxes[:8]], [False, True, True, True, True, True, False, False])
        self.assertIn("5 selected", self.browser.one("[data-selected]").text)

    def test_a_long_text_is_cut_with_the_whole_in_its_tooltip(self):
        self.browser.search("/dead?queue=default&reason=PayloadTooLarge")
        cut = self.browser.all("td .clamp")
        self.assertTrue(cut)
        self.assertTrue(all(one.get_attribute("title") for one in cut))

    def test_empty_lists_say_what_to_do(self):
        self.browser.open("/jobs?queue=default&state=scheduled&id=absent")
        self.assertTrue(eventually("nothing matches", lambda: self.browser.search().all("main .empty")))


class Charts(Live):
    """The charts of the overview."""

    def setUp(self):
        # The counters of a minute are written once per second.
        self.browser.open("/?span=1h")
        eventually("the outcomes are counted", lambda: self.browser.open("/?span=1h").all(f"{OUTCOMES} .cursor"))
        self.browser.freeze()

    def test_arrow_keys_move_the_crosshair_and_say_its_values(self):
        def cursor(name):
            return self.browser.one(f"{OUTCOMES} .cursor").get_attribute(name)
        self.assertEqual(self.browser.shown(".chart .tip"), [])
        self.browser.driver.execute_script("document.querySelector(arguments[0]).focus()", f"{OUTCOMES} .cursor")
        self.browser.type(Keys.HOME)
        eventually("the first minute is shown", lambda: cursor("aria-valuenow") == "0")
        self.assertIn("nothing was recorded", cursor("aria-valuetext"))
        self.browser.type(Keys.END)
        eventually("the last minute is shown", lambda: cursor("aria-valuenow") == "59")

        # The load may have been some minutes ago.
        def says_values():
            words = cursor("aria-valuetext")
            if "delivered" in words:
                return words
            self.browser.type(Keys.ARROW_LEFT)
            return None
        words = eventually("a minute with values", says_values)
        tip = self.browser.shown(f"{OUTCOMES} .tip")
        self.assertEqual(len(tip), 1)
        # The load may have been in two minutes.
        for name in ("delivered", "dead", "invalid_token"):
            self.assertEqual(name in words, name in tip[0], (words, tip))
        self.browser.type(Keys.ESCAPE)
        eventually("Escape hides the values", lambda: not self.browser.shown(".chart .tip"))

    def test_the_pointer_shows_the_values_and_a_click_keeps_them(self):
        plot = self.browser.one(f"{OUTCOMES} .plot")
        self.browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)

        def tips():
            return self.browser.shown(".chart .tip")
        ActionChains(self.browser.driver).move_to_element(plot).perform()
        eventually("the values are shown", tips)
        plot.click()
        ActionChains(self.browser.driver).move_to_element(self.browser.one("h1")).perform()
        self.assertEqual(len(tips()), 1)
        self.browser.type(Keys.ESCAPE)
        eventually("Escape hides them", lambda: not tips())

    def test_the_legend_hides_a_series_and_stays_hidden_after_a_reload(self):
        def button():
            return self.browser.one(f'{OUTCOMES} .legend button[data-name="delivered"]')

        def shown(name):
            return self.browser.driver.execute_script("""
                return [...document.querySelectorAll(arguments[0] + " svg rect." + arguments[1])]
                  .filter((one) => one.getAttribute("display") !== "none").length""", OUTCOMES, name)
        self.assertGreater(shown("delivered"), 0)
        self.assertEqual(button().get_attribute("aria-pressed"), "true")
        button().click()
        self.assertEqual(button().get_attribute("aria-pressed"), "false")
        self.assertEqual(shown("delivered"), 0)
        self.assertGreater(shown("dead"), 0)
        self.browser.open("/?span=1h").freeze()
        eventually("it stays hidden", lambda: shown("delivered") == 0)
        button().click()
        self.assertGreater(shown("delivered"), 0)

    def test_the_range_is_chosen_and_marked(self):
        names = [one.text for one in self.browser.all('nav.tabs[aria-label="Time"] a')]
        self.assertEqual(len(names), 6, names)
        for index in range(6):
            self.browser.press(self.browser.all('nav.tabs[aria-label="Time"] a')[index])
            current = [one.text for one in self.browser.all('nav.tabs[aria-label="Time"] a[aria-current]')]
            self.assertEqual(current, [names[index]])
            self.assertEqual(self.browser.problems(), [])

    def test_a_chart_has_its_numbers_and_links_without_scripts(self):
        with self.browser.without_scripts() as plain:
            # Opens the page again and again, because without scripts it does not change.
            links = eventually("the dead letters are counted", lambda: plain.open("/?span=1h").all(
                f"{OUTCOMES} tbody a[href*='/dead']") and plain.all(f"{OUTCOMES} tbody a[href]"))
            plain.one(f"{OUTCOMES} details summary").click()
            self.assertIn("delivered", plain.one(f"{OUTCOMES} thead").text)
            plain.press([one for one in links if "/dead" in one.get_attribute("href")][0])
            self.assertEqual(plain.title, "Dead letters")

    def test_actions_are_marks_on_the_charts(self):
        self.browser.open("/queues/default")
        self.browser.submit("pause-queue", reason="a mark on the charts")
        self.browser.open("/queues/default")
        self.browser.submit("resume-queue")
        self.browser.open("/?span=15m")
        eventually("the pause is marked", lambda: self.browser.open("/?span=15m").all(".chart .mark"))
        self.browser.sees("a mark on the charts")


class Inbox(Live):
    """The inbox of the simulator."""

    def test_a_refused_push_is_drawn_as_not_shown(self):
        self.addCleanup(setattr, self.browser, "base", self.browser.base)
        for path in inbox_pages(self):
            with self.subTest(path):
                self.browser.open(path)
                self.assertEqual(self.browser.problems(), [])
        for answer, is_shown in (("503", False), ("200", True)):
            self.browser.open("/")
            row = eventually("the push is in the list", lambda: [
                one for one in self.browser.all(".pushes > li") if "job 900" in one.text and answer in one.text])[0]
            self.browser.press(row.find_element("css selector", "a.subject"))
            preview = self.browser.one(".preview").text
            self.assertIn("job 900", preview)
            self.assertEqual("not shown: 503" in preview, not is_shown)

    def test_the_list_is_dense_and_the_newest_is_previewed_where_there_is_room(self):
        self.addCleanup(setattr, self.browser, "base", self.browser.base)
        self.addCleanup(self.browser.resize, 1280, 900)
        inbox_pages(self)
        for width, height, is_previewed in ((1280, 900, True), (390, 844, False)):
            self.browser.resize(width, height)
            self.browser.open("/")
            self.assertEqual(bool(self.browser.shown(".preview")), is_previewed)
            if is_previewed:
                heights = self.browser.driver.execute_script(
                    "return [...document.querySelectorAll('.pushes > li')].map((one) => one.getBoundingClientRect().height)")
                self.assertLess(max(heights), 50)


class Updates(Live):
    def test_a_page_shows_a_change_without_a_reload_and_rests_while_it_is_hidden(self):
        self.browser.open("/queues/other")
        self.browser.driver.execute_script("window.isSamePage = true")

        def waiting():
            return self.browser.driver.execute_script("""
                const names = [...document.querySelectorAll("dt, .figure .name")];
                return names.find((one) => one.textContent.trim() === "Waiting").nextElementSibling.textContent""")
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

    def test_the_last_numbers_stay_while_redis_hangs(self):
        self.browser.open("/queues/other")
        self.browser.open("/")
        self.browser.open("/jobs")
        redis = next(one for one in self.scene.processes if "redis-server" in one.args[0])
        redis.send_signal(signal.SIGSTOP)
        try:
            time.sleep(2)  # the kept numbers are out of date by then
            for path, has_numbers in (("/", True), ("/queues/other", True), ("/jobs", False)):
                with self.subTest(path):
                    self.browser.open(path)
                    self.assertEqual("These numbers are" in self.browser.text, has_numbers)
                    self.assertEqual(bool(self.browser.shown(".figure .value")), has_numbers)
                    self.assertTrue(self.browser.all("nav[aria-label=Pages] a"))
            self.browser.problems()
        finally:
            redis.send_signal(signal.SIGCONT)
        self.browser.open("/")
        self.assertNotIn("These numbers are", self.browser.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
