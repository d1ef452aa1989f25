"""Runs axe-core on each page of the dashboard and of the inbox, in light and dark mode."""

import time
import unittest
from pathlib import Path

from scene import token
from test_pages import Live

try:
    import axe_core_python
    AXE = Path(axe_core_python.__file__).with_name("axe.min.js").read_text()
except ImportError:
    AXE = None


@unittest.skipIf(AXE is None, "axe-core-python is not installed")
class Accessibility(Live):
    def check(self, paths):
        for path in paths:
            self.browser.open(path)
            self.browser.driver.execute_script(AXE)
            # Only colours differ in dark mode.
            for dark, rules, least in ((False, None, 6), (True, ["color-contrast"], 1)):
                with self.subTest(f"{path} {'dark' if dark else 'light'}"):
                    self.browser.set_dark(dark)
                    result = self.browser.driver.execute_async_script(
                        "const [runOnly, done] = arguments;"
                        "axe.run(document, {resultTypes: ['violations'], ...(runOnly && {runOnly})}).then(done)", rules)
                    self.assertGreaterEqual(len(result["passes"]), least)
                    found = [f"{one['id']} ({one['impact']}): {node['html'][:200]} {node['failureSummary']}"
                             for one in result["violations"] if one["impact"] in ("serious", "critical")
                             for node in one["nodes"][:3]]
                    self.assertEqual(found, [])
            self.browser.problems()
        self.browser.set_dark(False)

    def test_each_page_is_accessible(self):
        self.check(self.pages())

    def test_the_inbox_is_accessible(self):
        self.addCleanup(setattr, self.browser, "base", self.browser.base)
        self.browser.base = self.control
        self.scene.push({"token": token("aa", 1), "push_type": "liveactivity", "topic": "com.example.app.push-type.liveactivity",
                         "payload": {"aps": {"timestamp": int(time.time()), "event": "update", "content-state": {"home": 2},
                                             "alert": {"title": "Goal", "body": "2:1"}}}})
        self.browser.open("/")
        self.browser.sees("Goal")
        self.check(["/", "/inbox/1"])


del Live

if __name__ == "__main__":
    unittest.main(verbosity=2)
