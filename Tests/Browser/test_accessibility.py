"""Runs axe-core on each page of the dashboard and of the inbox, on a desk and on a phone, in light and dark mode."""

import unittest
from pathlib import Path

from test_pages import EMPTY, Live, inbox_pages

try:
    import axe_core_python
    AXE = Path(axe_core_python.__file__).with_name("axe.min.js").read_text()
except ImportError:
    AXE = None


@unittest.skipIf(AXE is None, "axe-core-python is not installed")
class Accessibility(Live):
    def check(self, paths, prepare=None):
        self.addCleanup(self.browser.set_dark, False)
        self.addCleanup(self.browser.resize, 1280, 900)
        for path in paths:
            self.browser.open(path)
            self.browser.driver.execute_script(AXE)
            # Only colours differ in dark mode; a phone shows the navigation as a menu, and lists as cards.
            for width, dark, rules, least in ((1280, False, None, 6), (1280, True, ["color-contrast"], 1), (390, False, None, 6),
                                              (390, True, ["color-contrast"], 1)):
                with self.subTest(f"{path} at {width} px, {'dark' if dark else 'light'}"):
                    self.browser.resize(width, 900)
                    self.browser.set_dark(dark)
                    if prepare:
                        prepare()
                    result = self.browser.driver.execute_async_script(
                        "const [runOnly, done] = arguments;"
                        "axe.run(document, {resultTypes: ['violations'], ...(runOnly && {runOnly})}).then(done)", rules)
                    self.assertGreaterEqual(len(result["passes"]), least)
                    found = [f"{one['id']} ({one['impact']}): {node['html'][:200]} {node['failureSummary']}"
                             for one in result["violations"] for node in one["nodes"][:3]]
                    self.assertEqual(found, [])
            self.browser.problems()

    def test_each_page_is_accessible(self):
        self.check(self.pages())

    def test_each_view_of_the_inbox_is_accessible(self):
        self.addCleanup(setattr, self.browser, "base", self.browser.base)
        self.check(inbox_pages(self))

    def test_the_help_and_the_open_menu_are_accessible(self):
        def open_help():
            if not self.browser.all("dialog[open]"):
                self.browser.type("?")

        def open_menu():
            self.browser.driver.execute_script("document.getElementById('menu').showPopover()")
        self.check(["/jobs"], prepare=open_help)
        self.check(["/jobs"], prepare=open_menu)

    def test_a_selection_is_accessible(self):
        def select():
            box = self.browser.one("tbody input[type=checkbox]")
            if not box.is_selected():
                box.click()
        self.check(["/jobs?state=scheduled", "/dead"], prepare=select)


class Empty(Accessibility):
    """Pages of a queue without jobs."""

    @classmethod
    def fill(cls):
        pass

    test_each_view_of_the_inbox_is_accessible = test_the_help_and_the_open_menu_are_accessible = test_a_selection_is_accessible = None

    def test_each_page_is_accessible(self):
        self.check(EMPTY)


del Live

if __name__ == "__main__":
    unittest.main(verbosity=2)
