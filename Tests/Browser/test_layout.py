"""Checks the layout of every page at four widths, in both themes; `layout.js` has the rules.

Each page is opened once and resized. No word is broken, no control is covered or too small, and no page scrolls sideways."""

import unittest
from pathlib import Path

from scene import eventually
from test_pages import EMPTY, Live, inbox_pages

RULES = (Path(__file__).parent / "layout.js").read_text()
# Width and height in CSS pixels, and whether the colours are dark.
WINDOWS = [(390, 844, False), (768, 1024, True), (1280, 900, False), (1920, 1080, True)]
# The longest word in characters that no cell, or no fact, may break; sizes in CSS pixels.
LIMITS = {"word": 30, "fact": 18, "target": 24, "header": 64}


class Checked(Live):
    """Applies the rules to pages."""

    def tearDown(self):
        self.browser.set_dark(False)
        self.browser.resize(1280, 900)
        super().tearDown()

    def faults(self, path, before=None):
        """Opens a page, and returns its faults at each width. `before` prepares a list at each width."""
        self.browser.search(path) if before else self.browser.open(path)
        found = []
        for width, height, dark in WINDOWS:
            self.browser.resize(width, height)
            self.browser.set_dark(dark)
            if before:
                before()
            found += [f"{width} px: {fault}" for fault in self.browser.driver.execute_script(RULES, LIMITS)]
        return found

    def check(self, pages):
        """Checks the paths of pages, each with the beginning of its title."""
        for path, title in pages.items():
            with self.subTest(path):
                self.assertEqual(self.faults(path), [])
                self.assertTrue(self.browser.title.startswith(title), self.browser.title)
            # One of the pages has an unknown address.
            found = [one for one in self.browser.problems() if "404 (Not Found)" not in one or "no-such" not in path]
            self.assertEqual(found, [])


class Layout(Checked):
    def test_each_page_at_four_widths(self):
        self.check(self.pages())

    def test_each_view_of_the_inbox_at_four_widths(self):
        self.addCleanup(setattr, self.browser, "base", self.browser.base)
        self.check(dict.fromkeys(inbox_pages(self), ""))

    def test_a_list_with_a_selection_at_four_widths(self):
        for path in ("/jobs?state=scheduled", "/dead", "/invalid"):
            with self.subTest(path):
                def select():
                    box = self.browser.one("tbody input[type=checkbox]")
                    if not box.is_selected():
                        box.click()
                    bar = eventually("the bar appears", lambda: self.browser.shown(".bar"))[0]
                    self.assertIn("1", bar)
                self.assertEqual(self.faults(path, before=select), [])

    def test_the_bar_is_hidden_without_a_selection(self):
        for path in ("/jobs?state=scheduled", "/dead", "/invalid"):
            with self.subTest(path):
                self.browser.search(path)
                self.assertEqual(self.browser.shown(".bar"), [])

    def test_the_menu_of_narrow_windows_shows_every_link(self):
        for width, height, dark in WINDOWS[:2]:
            with self.subTest(width):
                self.browser.resize(width, height)
                self.browser.set_dark(dark)
                self.browser.open("/")
                self.assertEqual(self.shown_links(), 0)
                self.browser.one(".menu-button").click()
                covered = self.browser.driver.execute_script("""
                    return [...document.querySelectorAll(".menu nav a, .menu button")].filter((one) => {
                      one.scrollIntoView({ block: "nearest" });
                      const box = one.getBoundingClientRect();
                      const hit = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
                      return !hit || !one.contains(hit) || box.height < 24 || box.right > innerWidth;
                    }).map((one) => one.textContent)""")
                self.assertEqual(covered, [])
                self.assertEqual(self.shown_links(), 12)

    def shown_links(self):
        """Returns the number of links of the navigation that are visible; Selenium counts those of a closed menu, too."""
        return self.browser.driver.execute_script("""
            return [...document.querySelectorAll("nav[aria-label=Pages] a")].filter((one) => one.checkVisibility()).length""")

    def test_the_first_job_is_in_the_first_screen_of_a_phone(self):
        self.browser.resize(390, 844)
        for path in ("/jobs", "/jobs?state=scheduled", "/dead"):
            with self.subTest(path):
                self.browser.search(path)
                top = self.browser.driver.execute_script(
                    "return document.querySelector('main table.list tbody tr').getBoundingClientRect().top + scrollY")
                self.assertLess(top, 800)

    def test_dialogs_fit_into_each_window(self):
        for width, height, dark in WINDOWS:
            with self.subTest(width):
                self.browser.resize(width, height)
                self.browser.set_dark(dark)
                self.browser.open("/jobs?state=scheduled")
                self.browser.type("?")
                self.assertEqual(self.outside(), [])
                self.browser.type("\ue00c")
                eventually("the dialog is closed", lambda: not self.browser.all("dialog[open]"))

    def outside(self):
        """Returns the parts of the open dialog that are not in the window."""
        eventually("a dialog is open", lambda: self.browser.all("dialog[open]"))
        return self.browser.driver.execute_script("""
            return [...document.querySelectorAll("dialog[open], dialog[open] button, dialog[open] h2")].filter((one) => {
              const box = one.getBoundingClientRect();
              return box.left < 0 || box.top < 0 || box.right > innerWidth || box.bottom > innerHeight;
            }).map((one) => one.outerHTML.slice(0, 80))""")


class Empty(Checked):
    """Pages of a queue without jobs."""

    @classmethod
    def fill(cls):
        pass

    def test_each_page_without_data_at_four_widths(self):
        self.check(dict.fromkeys(EMPTY, ""))

    def test_a_page_without_data_says_what_to_do_next(self):
        for path, next_step in (("/jobs", "code"), ("/campaigns", "code"), ("/devices", "p"), ("/dead", "p"), ("/invalid", "p"),
                                ("/activity", "p")):
            with self.subTest(path):
                self.browser.search(path)
                part = self.browser.one("main .empty")
                self.assertTrue(part.find_element("css selector", "strong").text)
                self.assertTrue(part.find_elements("css selector", next_step), part.text)


del Checked, Live

if __name__ == "__main__":
    unittest.main(verbosity=2)
