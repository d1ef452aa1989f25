"""Headless Chromium. It records the errors, violations and dialogs that no page may cause."""

import os
from contextlib import contextmanager

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from scene import LIMIT, eventually

# Collects violations of the Content-Security-Policy and errors; runs before the scripts of the page.
RECORDER = """
window.__refused = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__refused.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
addEventListener("error", (event) => window.__refused.push(`error ${event.message}`), true);
addEventListener("unhandledrejection", (event) => window.__refused.push(`rejection ${event.reason}`));
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => window.__refused.push(`${name} was called`);
"""


class Element(WebElement):
    """An element that is found again, by its selector and its index, after a live update has replaced it."""

    @classmethod
    def all(cls, scope, by, selector):
        """Returns the elements in a driver or in another element."""
        found = []
        for place, one in enumerate(scope.find_elements(by, selector)):
            one = cls(one.parent, one.id)
            one.find = lambda place=place: scope.find_elements(by, selector)[place].id
            found.append(one)
        return found

    def again(self, act):
        try:
            return act()
        except StaleElementReferenceException as stale:
            try:
                self._id = self.find()
            except (AttributeError, IndexError):
                raise stale from None
            return act()

    def _execute(self, command, params=None):
        return self.again(lambda: WebElement._execute(self, command, params))

    def get_attribute(self, name):
        return self.again(lambda: WebElement.get_attribute(self, name))

    def is_displayed(self):
        return self.again(lambda: WebElement.is_displayed(self))

    def find_element(self, by, selector):
        found = Element.all(super(), by, selector)
        assert found, f"{self.tag_name} has no {selector}"
        return found[0]

    def find_elements(self, by, selector):
        return Element.all(super(), by, selector)


class Browser:
    def __init__(self, base, width=1280, height=900, dark=False, insecure=False):
        options = webdriver.ChromeOptions()
        options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        for one in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                    f"--window-size={width},{height}"):
            options.add_argument(one)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        if insecure:
            options.add_argument("--ignore-certificate-errors")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(
            options=options, service=Service(os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")))
        self.driver.set_page_load_timeout(LIMIT)
        self.driver.set_script_timeout(LIMIT)
        self.base, self.has_scripts = base, True
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORDER})
        self.resize(width, height, is_mobile=width < 600)
        self.set_dark(dark)

    def close(self):
        self.driver.quit()

    def resize(self, width, height, is_mobile=False):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile})

    def set_dark(self, dark):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    @contextmanager
    def without_scripts(self):
        """Disables scripts in the pages that are opened within the block."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        self.has_scripts = False
        try:
            yield self
        finally:
            self.problems()
            self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
            self.has_scripts = True
            self.open("about:blank", "")

    def open(self, path, base=None):
        self.driver.get((self.base if base is None else base) + path)
        return self

    def shown(self, css):
        """Returns the texts of the visible elements, even if an update replaces them at this moment."""
        return self.driver.execute_script("""
            return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility({ visibilityProperty: true }))
              .map((one) => one.innerText)""", css)

    def freeze(self):
        """Ends the updates of the open page."""
        self.driver.execute_script("dispatchEvent(new Event('pagehide'))")
        return self

    def problems(self):
        """Returns the console messages, violations and dialogs since the last call."""
        found = [f"{one['level']} {one['message']}" for one in self.driver.get_log("browser")
                 if one["level"] in ("SEVERE", "WARNING")]
        if self.has_scripts:
            found += self.driver.execute_script("return window.__refused.splice(0)")
        return found

    # Elements

    def all(self, selector):
        return Element.all(self.driver, By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        assert found, f"{self.driver.current_url} has no {selector}"
        return found[0]

    @property
    def text(self):
        return eventually("the page has a text", lambda: self.one("main").text)

    @property
    def title(self):
        return self.one("h1").text

    def sees(self, text):
        eventually(f"{self.driver.current_url} shows {text}", lambda: text in self.text)

    def pages(self, path=None):
        """Opens a list and yields on each of its pages. A page may have no row, because its search ends after a short time."""
        if path:
            self.open(path)
        yield
        while links := self.all("a[rel=next]"):
            self.press(links[0])
            yield

    # The keyboard

    def type(self, *keys):
        """Types as an operator does, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()
        return self

    def focused(self):
        """Returns the focused element, or None if the focus is on the page itself."""
        active = self.driver.switch_to.active_element
        return None if active.tag_name in ("body", "html") else active

    def tab_to(self, names, within="", limit=150):
        """Presses Tab until a control with one of the names has the focus; returns the number of presses.

        The name is the text, the label or the name attribute. `within` selects an ancestor."""
        names = [names] if isinstance(names, str) else names
        passed = []
        for count in range(limit):
            name = self.driver.execute_script("""
                const [names, within] = arguments, one = document.activeElement;
                if (!one || !one.matches("a, button, input, select, textarea, summary, [role]")) return ["", false];
                const own = [one.textContent.trim(), one.getAttribute("aria-label"), one.getAttribute("name")].filter(Boolean);
                return [own[0] ?? one.tagName, own.some((text) => names.includes(text)) && (!within || !!one.closest(within))]""",
                                              names, within)
            if name[1]:
                return count
            passed.append(name[0][:30])
            self.type(Keys.TAB)
        raise AssertionError(f"{self.driver.current_url}: Tab does not reach {names} in {within or 'the page'}, but {passed}")

    def enter(self):
        """Presses Enter on the focused control, and waits for the next page."""
        old = self.one("html").id
        self.type(Keys.ENTER)
        self.arrive(old)

    def search(self, path=None):
        """Opens a list and searches until a page has rows, or to the end."""
        any(self.all("tbody tr") for _ in self.pages(path))
        return self

    def form(self, action, within=""):
        """Returns the form of an action that contains an element, and opens the menu that has it. Live updates can replace it
        at any time."""
        one = self.one(f'form[action$="/actions/{action}"]' + (f":has({within})" if within else ""))
        if self.driver.execute_script("return Boolean(arguments[0].closest('[popover]:not(:popover-open)'))", one):
            self.one("[popovertarget=actions]").click()
        return one

    def submit(self, action, button=None, _within="", **values):
        """Fills in the form of an action and presses its button, as an operator does.

        Starts again if a live update replaces the form before it has the focus."""
        old = self.one("html").id

        def press():
            form = self.form(action, _within)
            for name, value in values.items():
                self.fill(form, name, value)
            buttons = [one for one in form.find_elements(By.TAG_NAME, "button") if button in (None, one.text)]
            assert buttons, f"{self.driver.current_url}: the form {action} has no button {button}"
            buttons[0].click()
            return True
        eventually(f"the form {action} is sent", press)
        self.arrive(old)

    def fill(self, form, name, value):
        field = form.find_element(By.NAME, name)
        if field.tag_name == "select":
            Select(field).select_by_value(value)
        elif field.get_attribute("type") == "checkbox":
            if field.is_selected() != value:
                field.click()
        else:
            self.driver.execute_script("arguments[0].value = ''", field)
            field.send_keys(value)

    def press(self, button):
        """Clicks, and waits for the next page, or for the dialog that asks first."""
        old = self.one("html").id
        button.click()
        self.arrive(old)

    def arrive(self, old):
        """Waits until the document has been replaced and is complete, or until a dialog covers it."""
        def is_new():
            try:
                if self.all("dialog.action[open]"):
                    return True
                return self.one("html").id != old and self.driver.execute_script(
                    "return document.readyState") == "complete"
            except Exception as error:  # the document is being replaced
                if "stale" in str(error) or "no such" in str(error) or "detached" in str(error):
                    return False
                raise
        eventually("the next page or a dialog", is_new)

    def question(self):
        """Waits until a run asks for its confirmation, in a dialog or on its page; returns the button."""
        return eventually("the question", lambda: [
            one for one in self.all('form[action$="/actions/confirm-run"] button') if one.is_displayed()])[0]

    def confirm(self, text):
        """Confirms a bulk run, waits for its end, and leaves its dialog; returns the result."""
        button = self.question()
        assert text in button.text, f"the button is {button.text}, not {text}"
        if not self.all("dialog[open]"):
            self.press(button)
            return eventually("the end of the run", lambda: self.one("main .notice[role=status]").text)
        button.click()
        result = eventually("the end of the run", lambda: self.one("dialog[open] .notice[role=status]").text)
        self.leave()
        return result

    def leave(self):
        """Closes the dialog of a run that has ended, and waits for the page that it changed."""
        old = self.one("html").id
        self.one("dialog[open] form[method=dialog] button").click()
        eventually("the dialog is closed", lambda: not self.all("dialog[open]"))
        self.arrive(old)

    def toast(self, text):
        """Waits for a message about an action; returns it."""
        return eventually(f"a message says {text}", lambda: [
            one for one in self.all("#toasts .toast") if text.lower() in one.text.lower()])[0]
