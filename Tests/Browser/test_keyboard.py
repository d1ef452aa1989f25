"""Handles the incidents of an on-call engineer by keyboard alone, and checks their effect in Redis or in the simulator."""

import json
import time
import unittest

from selenium.webdriver.common.keys import Keys

from scene import eventually, send_json, token
from test_pages import Live, job

DEAD, CANCELLED, INVALID = "push:{default}:dead", "push:{default}:cancelled", "push:{shared}:invalid-tokens"
RULES = ["prefix=410,answer=410", "prefix=503,answer=503"]


class Keyboard(Live):
    queues = "default"

    @property
    def redis(self):
        return self.scene.redis

    def find(self, text):
        """Searches for a text from the overview."""
        self.browser.open("/")
        self.browser.type("/")
        eventually("the search has the focus", lambda: (one := self.browser.focused()) and one.get_attribute("id") == "search")
        self.browser.type(text)
        self.browser.enter()

    def rows(self):
        return self.browser.all("main table.list tbody tr")

    def current(self):
        """Returns the number of the current row; None without one."""
        marked = [index for index, row in enumerate(self.rows()) if row.get_attribute("aria-current") == "true"]
        self.assertLessEqual(len(marked), 1)
        return marked[0] if marked else None

    def press(self, names, within="main"):
        """Reaches a button with Tab and presses Enter; a dialog may follow."""
        presses = self.browser.tab_to(names, within)
        self.browser.type(Keys.ENTER)
        return presses

    def confirm(self, number):
        """Confirms the open dialog, which must show a number or a name, and leaves it; returns the result."""
        button = self.browser.question()
        self.assertIn(str(number), self.browser.one("dialog[open]").text)
        self.assertTrue(self.browser.driver.execute_script("return !!document.activeElement.closest('dialog[open]')"),
                        "the dialog has the focus")
        self.browser.tab_to(button.text, "dialog[open]", limit=10)
        self.browser.type(Keys.ENTER)
        result = eventually("the end of the run", lambda: self.browser.one("dialog[open] .notice[role=status]").text)
        self.browser.tab_to("Close", "dialog[open]", limit=10)
        old = self.browser.one("html").id
        self.browser.type(Keys.ENTER)
        eventually("the dialog is closed", lambda: not self.browser.all("dialog[open]"))
        self.browser.arrive(old)
        return result

    # Keys

    def test_slash_focuses_the_search_and_eight_digits_lead_to_the_device(self):
        self.scene.push(job("41077777", 1))
        eventually("the token is invalid", lambda: self.redis("SISMEMBER", INVALID, token("41077777", 1)))
        self.find("41077777")
        self.assertEqual(self.browser.title, "Device 41077777…")
        self.browser.sees("Unregistered")

    def test_digits_of_several_devices_lead_to_a_choice(self):
        self.find(token("410", 2)[:8])
        self.assertEqual(len(self.rows()), 3)
        self.browser.type("j")
        self.browser.enter()
        self.assertTrue(self.browser.title.startswith("Device 4100"), self.browser.title)
        self.browser.sees("Unregistered")

    def test_help_opens_and_closes(self):
        self.browser.open("/jobs")
        self.browser.type("?")
        dialog = eventually("the help", lambda: self.browser.all("dialog[open]"))[0]
        for word in ("Search", "Select the row", "Actions on the selected rows", "Open the row"):
            self.assertIn(word, dialog.text)
        self.browser.type("j")
        self.assertIsNone(self.current(), "keys do nothing below a dialog")
        self.browser.type(Keys.ESCAPE)
        eventually("Escape closes it", lambda: not self.browser.all("dialog[open]"))

    def test_keys_are_letters_in_a_field(self):
        self.browser.open("/jobs")
        self.browser.type("/")
        self.browser.type("jkx?/")
        self.assertEqual(self.browser.one("#search").get_attribute("value"), "jkx?/")
        self.assertEqual(self.browser.all("dialog[open]"), [])
        self.browser.type(Keys.ESCAPE)
        eventually("Escape leaves the field", lambda: self.browser.focused() is None)

    def test_rows_are_walked_selected_and_opened(self):
        self.browser.search("/jobs?state=retrying")
        self.assertIsNone(self.current())
        self.browser.type("j", "j")
        self.assertEqual(self.current(), 1)
        self.browser.type("k")
        self.assertEqual(self.current(), 0)
        self.browser.type("k")
        self.assertEqual(self.current(), 0, "the first row stays the first")
        self.assertEqual(self.browser.shown(".bar"), [])
        self.browser.type("x")
        box = self.rows()[0].find_element("css selector", "input[type=checkbox]")
        self.assertTrue(box.is_selected())
        self.assertIn("1", eventually("the bar appears", lambda: self.browser.shown(".bar"))[0])
        self.browser.tab_to(["Run now", "Cancel", "Delete"], ".bar")
        self.browser.driver.execute_script("document.activeElement.blur()")
        self.browser.type("a")
        self.assertEqual(self.browser.focused().text, "Run now", "a leads to the actions")
        self.browser.driver.execute_script("document.activeElement.blur()")
        self.browser.type("j", "x")
        eventually("two are selected", lambda: "2" in self.browser.shown(".bar")[0])
        self.browser.type("x", "k", "x")
        eventually("the bar is hidden", lambda: not self.browser.shown(".bar"))
        target = self.rows()[0].find_element("css selector", "a[href]").get_attribute("href")
        self.browser.enter()
        self.assertEqual(self.browser.driver.current_url, target)

    def test_the_current_row_stays_current_after_an_update(self):
        self.browser.open("/queues").freeze()
        self.browser.type("j")
        self.assertEqual(self.current(), 0)
        # As an update does it: rows without the mark in place of those with it.
        self.browser.driver.execute_script("""
            const body = document.querySelector("main table.list tbody");
            body.innerHTML = body.innerHTML.replace(/ class="current"| aria-current="true"/g, "");
            document.dispatchEvent(new Event("live-update"));""")
        self.assertEqual(self.current(), 0)

    def test_help_has_the_keys_of_its_page_only(self):
        self.browser.open("/redis")
        self.browser.type("?")
        text = eventually("the help", lambda: self.browser.all("dialog[open]"))[0].text
        self.assertIn("Search", text)
        for word in ("Select the row", "Actions on the selected rows", "Delete the push"):
            self.assertNotIn(word, text)

    # Incidents

    def test_cancel_a_wrong_campaign(self):
        self.scene.push(*[job("cc", n, id=f"wrong-{n}", campaign="wrong-one", send_at=int(time.time()) + 86400) for n in range(5)])
        # One job of the campaign is sent at once.
        self.scene.push(job("aa", 700, campaign="wrong-one"))
        eventually("the campaign is known", lambda: "wrong-one" in self.scene.run("campaign", "list", "--json").stdout
                   and self.scene.run("jobs", "list", "--json").stdout.count('"wrong-one"') == 5)
        # The dashboard reads the campaigns once a second.
        self.browser.open("/campaigns")
        self.browser.sees("wrong-one")
        self.find("wrong-one")
        self.assertEqual(self.browser.title, "Campaign wrong-one")
        self.press("Actions…")
        self.press("Cancel the campaign", ".sheet")
        self.assertIn("wrong-one", self.confirm("wrong-one"))
        eventually("the campaign is cancelled", lambda: any(
            one["campaign"] == "wrong-one" and one["state"] == "cancelled"
            for one in map(json.loads, self.scene.run("campaign", "list", "--json").stdout.splitlines())))

    def test_when_a_key_was_revoked_resume_its_app(self):
        send_json(f"{self.control}/rules", {"rules": ["answer=InvalidProviderToken"]})
        self.addCleanup(send_json, f"{self.control}/rules", {"rules": RULES})
        self.scene.push(job("4031", 1))
        # Waits for the problem, because the list of failures may show the reason earlier.
        self.browser.open("/")
        eventually("the problem has its button", lambda: any(
            one.text.startswith("Resume") for one in self.browser.all("main button")))
        # The problem is the first thing of the page. It stays until the key is accepted again.
        presses = self.press(["Resume", "Resume app", "Resume, and probe now", "Resume and probe"])
        self.assertLess(presses, 40)
        self.browser.toast("default")
        eventually("the lanes are told to probe", lambda: self.redis("EXISTS", "push:{shared}:apps:default:resumed"))

    def test_pause_an_app_and_resume_it(self):
        self.browser.open("/apps/default")
        self.press("Actions…")
        self.browser.tab_to("reason", ".sheet")
        self.browser.type("by keyboard", Keys.ENTER)
        self.browser.toast("default")
        eventually("the app is paused", lambda: self.redis("EXISTS", "push:{shared}:apps:default:paused"))
        self.browser.open("/apps/default")
        self.browser.sees("by keyboard")
        self.press("Resume")
        self.browser.toast("default")
        eventually("the app is resumed", lambda: not self.redis("EXISTS", "push:{shared}:apps:default:paused"))

    def test_requeue_dead_letters(self):
        self.scene.push(*[job("ab", n, id=f"flood-{n}", app="unknown", campaign="flood") for n in range(3)])
        eventually("dead letters", lambda: len(self.dead("flood")) == 3)
        self.browser.search("/dead?campaign=flood")
        self.browser.type("j", "x", "j", "x")
        self.browser.type("a")
        self.press("Requeue", ".bar")
        self.assertIn("2", self.confirm("2"))
        self.browser.open("/activity")
        self.browser.sees("requeue")

    def dead(self, text):
        return [one for one in self.redis("ZRANGE", DEAD, 0, -1) if text in one]

    def test_cancel_a_scheduled_job(self):
        self.scene.push(job("cc", 800, id="tomorrow", send_at=int(time.time()) + 86400))
        eventually("the job is scheduled", lambda: "tomorrow" in self.scene.run("jobs", "list", "--json").stdout)

        def is_found():
            # A search on a busy machine may end before it has looked at all jobs. Its page says so, and the operator searches again.
            self.find("tomorrow")
            return self.browser.title.startswith("Job ")
        eventually("the search leads to the job", is_found)
        before = self.redis("ZCARD", CANCELLED)
        self.press(["Cancel", "Cancel…", "Cancel the job", "Cancel the job…"])
        self.confirm("1")
        eventually("the job is cancelled", lambda: self.redis("ZCARD", CANCELLED) == before + 1)

    def test_a_typo_is_named(self):
        self.find("sprnig")
        self.browser.sees("sprnig")
        self.browser.open("/jobs?since=soon")
        self.browser.sees("must be a duration ago")
        self.assertTrue(any("400" in one for one in self.browser.problems()))


del Live

if __name__ == "__main__":
    unittest.main(verbosity=2)
