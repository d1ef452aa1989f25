"""Performs each action of the dashboard in a browser, and checks its effect in Redis or in the simulator."""

import json
import re
import time
import unittest

from selenium.webdriver.common.keys import Keys

from scene import LIMIT, eventually, notifications, send_json, token
from test_pages import Live, job

JOBS, DEAD, INVALID = "push:{default}:jobs", "push:{default}:dead", "push:{shared}:invalid-tokens"
CANCELLED = "push:{default}:cancelled"


class Actions(Live):
    queues = "default"

    @classmethod
    def fill(cls):
        pass

    @property
    def redis(self):
        return self.scene.redis

    def listed(self, command, *arguments):
        lines = self.scene.run(command, "list", "--json", *arguments).stdout.splitlines()
        return [json.loads(line) for line in lines if line]

    def ids(self, command, *arguments):
        return sorted(one["id"] for one in self.listed(command, *arguments) if "id" in one)

    def select(self, count):
        boxes = self.browser.all("tbody input[type=checkbox]")
        self.assertGreaterEqual(len(boxes), count)
        for box in boxes[:count]:
            box.click()
        self.assertIn(f"{count} selected", self.browser.one("[data-selected]").text)

    def bulk(self, button, everything=False):
        form = self.browser.one("form[data-select]")
        if everything:
            # Everything that matches can be chosen once all rows of the page are.
            form.find_element("css selector", "thead input[type=checkbox]").click()
            form.find_element("css selector", "input[name=scope][value=all]").click()
        self.browser.press([one for one in form.find_elements("tag name", "button") if one.text == button][0])

    def later(self, prefix, count, **members):
        """Enqueues jobs scheduled for tomorrow."""
        self.scene.push(*[job("cc", n, id=f"{prefix}-{n}", send_at=int(time.time()) + 86400, **members) for n in range(count)])
        eventually("the jobs are scheduled", lambda: len(
            [one for one in self.ids("jobs", "--state", "scheduled") if one.startswith(prefix + "-")]) == count)

    def sent(self, count):
        """Returns the number of notifications for the devices of scheduled jobs so far."""
        return sum(len(notifications(self.control, token("cc", number))) for number in range(count))

    def bury(self, number, count):
        """Enqueues jobs that become dead letters, because their payloads are too large."""
        before = self.redis("ZCARD", DEAD)
        self.scene.push(*[job("ab", number + n, id=f"dead-{number + n}", payload={"aps": {"alert": "x" * 5000}})
                          for n in range(count)])
        eventually("the dead letters", lambda: self.redis("ZCARD", DEAD) == before + count)

    def test_pause_and_resume_a_queue(self):
        reason = "<b>wrong</b> \"template\""
        self.browser.open("/queues/default")
        self.browser.submit("pause-queue", reason=reason)
        self.browser.sees(reason)
        self.assertIn("wrong", str(self.redis("GET", "push:{default}:paused")
                                   if self.redis("TYPE", "push:{default}:paused") == "string"
                                   else self.redis("HGETALL", "push:{default}:paused")))
        self.scene.push(job("a1"))
        time.sleep(2)
        self.assertEqual(notifications(self.control, token("a1")), [])
        self.browser.open("/queues/default")
        self.browser.submit("resume-queue")
        eventually("it is sent", lambda: notifications(self.control, token("a1")))
        self.assertEqual(self.redis("EXISTS", "push:{default}:paused"), 0)
        self.browser.open("/activity")
        self.browser.sees("queue default")
        self.browser.sees(reason)

    def test_pause_and_resume_an_app(self):
        self.browser.open("/apps")
        self.browser.press(self.browser.one("tbody a[href*='/apps/default']"))
        self.browser.submit("pause-app", reason="a new key")
        self.browser.sees("a new key")
        self.browser.open("/apps")
        self.browser.sees("a new key")
        # The lane sends until it has read the pause; then it defers a job, and claims no more.
        eventually("a job is deferred", lambda: self.scene.push(job("a5")) or any(
            token("a5") in one for one in self.redis("ZRANGE", "push:{default}:retry", 0, -1)))
        self.scene.push(job("a2"))
        time.sleep(2)
        self.assertEqual(notifications(self.control, token("a2")), [])
        self.browser.submit("resume-app")
        eventually("it is not paused", lambda: "a new key" not in self.browser.text)
        # The deferred job is still waiting, but later jobs are sent.
        self.scene.push(job("a4"))
        eventually("another is sent", lambda: notifications(self.control, token("a4")))
        self.assertEqual(self.redis("EXISTS", "push:{shared}:apps:default:paused"), 0)

    def test_quiet_work_and_stop(self):
        worker, control = self.scene.start_worker("--lease", "7s", queue="fleet", name="worker-2")
        web, address = self.scene.start_web(queue="fleet", name="web-2")
        browser = self.browser
        self.addCleanup(setattr, browser, "base", browser.base)
        browser.base = address
        browser.open("/workers")
        name = eventually("its heartbeat", lambda: self.redis("ZRANGE", "push:{fleet}:workers", 0, -1))[0]
        name = name.rpartition(".")[0]
        field = f'input[name=worker][value="{name}"]'

        def act(action):
            eventually(f"the button {action}", lambda: browser.all(f'form[action$="/actions/{action}"] {field}'))
            browser.submit(action, _within=field)

        def state():
            return [row.text for row in browser.all("tbody tr") if name in row.text][0]
        act("quiet-worker")
        eventually("it is quiet", lambda: " quiet " in state().replace("\n", " "))
        self.scene.push(job("a3"), queue="fleet")
        time.sleep(2)
        self.assertEqual(notifications(control, token("a3")), [])
        act("work-worker")
        eventually("it is sent", lambda: notifications(control, token("a3")))
        eventually("it works", lambda: "running" in state())
        act("stop-worker")
        browser.question()
        self.assertIn("This stops workers", browser.one("dialog[open]").text)
        # The dialog names the queue, because this is its only worker.
        self.assertIn("fleet", browser.one("dialog[open] .notice").text)
        self.assertIsNone(worker.poll())
        browser.confirm("Stop 1 worker")
        browser.open("/workers")
        self.assertEqual(worker.wait(LIMIT), 0)
        eventually("it is not shown", lambda: name not in browser.text)
        self.assertEqual(browser.problems(), [])

    def test_run_cancel_and_delete_jobs(self):
        self.later("pick", 4)
        self.browser.search("/jobs?state=scheduled&match=pick-")
        self.select(1)
        self.bulk("Delete")
        self.assertIn("1 job", self.browser.confirm("1 job"))
        self.assertEqual(len([one for one in self.ids("jobs") if one.startswith("pick-")]), 3)
        self.browser.search("/jobs?state=scheduled&match=pick-")
        before = self.redis("ZCARD", CANCELLED)
        self.select(1)
        self.bulk("Cancel")
        self.browser.confirm("1 job")
        eventually("a cancelled job", lambda: self.redis("ZCARD", CANCELLED) == before + 1)
        self.assertEqual(len([one for one in self.ids("dead", "--reason", "Cancelled") if one.startswith("pick-")]), 1)
        self.browser.search("/jobs?state=scheduled&match=pick-")
        self.select(1)
        before = self.sent(4)
        self.bulk("Run now")
        self.browser.confirm("1 job")
        eventually("one is sent", lambda: self.sent(4) == before + 1)
        self.later("all", 60)
        self.browser.search("/jobs?state=scheduled&match=all-")
        self.bulk("Delete", everything=True)
        self.assertIn("60 jobs", self.browser.confirm("60 jobs"))
        self.assertEqual([one for one in self.ids("jobs") if one.startswith("all-")], [])
        self.assertEqual(len([one for one in self.ids("jobs") if one.startswith("pick-")]), 1)

    def test_move_jobs_to_another_queue(self):
        self.later("move", 3)
        self.scene.push(job("cc", 99, id="resident"), queue="bulk")
        self.browser.search("/jobs?state=scheduled&match=move-")
        self.assertEqual(self.browser.all("[name=to_queue]"), [])
        eventually("the queue is known", lambda: self.browser.search("/jobs?state=scheduled&queue=default&match=move-").all(
            "[name=to_queue] option[value=bulk]"))
        self.select(2)
        self.bulk("Move")
        self.browser.confirm("2 jobs")
        moved = [json.loads(one)["id"] for one in self.scene.run(
            "jobs", "list", "--json", "--queue", "bulk", "--state", "scheduled").stdout.splitlines()]
        self.assertEqual(len(moved), 2)
        self.assertEqual(len([one for one in self.ids("jobs", "--queue", "default") if one.startswith("move-")]), 1)
        self.redis("DEL", "push:{bulk}:jobs", "push:{bulk}:retry")

    def test_without_scripts_a_page_asks_and_nothing_selected_changes_nothing(self):
        self.later("none", 2)

        def press(name):
            self.browser.search("/jobs?state=scheduled&match=none-")
            boxes = self.browser.all("tbody input[type=checkbox]")
            self.assertEqual(len(boxes), 2)
            if name == "Cancel":
                boxes[0].click()
            self.browser.press([one for one in self.browser.all("form[data-select] button") if one.text == name][0])
        with self.browser.without_scripts():
            press("Delete")
            self.browser.sees("Nothing is selected")
            self.assertEqual(len([one for one in self.ids("jobs") if one.startswith("none-")]), 2)
            press("Cancel")
            self.assertIn("1 job", self.browser.confirm("1 job"))
            self.assertEqual(len([one for one in self.ids("jobs") if one.startswith("none-")]), 1)

    def test_a_message_says_what_was_done_and_undoes_it(self):
        self.browser.open("/queues/default")
        self.browser.submit("pause-queue", reason="by mistake")
        toast = self.browser.toast("paused")
        self.assertNotIn("note=", self.browser.driver.current_url)
        self.assertEqual(self.redis("EXISTS", "push:{default}:paused"), 1)
        self.browser.press([one for one in toast.find_elements("css selector", "button") if one.text.startswith("Undo")][0])
        self.browser.toast("resumed")
        eventually("the queue is resumed", lambda: self.redis("EXISTS", "push:{default}:paused") == 0)
        self.browser.open("/queues/default")
        self.assertEqual(self.browser.all("#toasts .toast"), [], "a message is shown once")

    def test_a_dialog_that_is_left_changes_nothing(self):
        self.later("left", 2)
        for leave in ("escape", "cancel"):
            with self.subTest(leave):
                self.browser.search("/jobs?state=scheduled&match=left-")
                self.select(2)
                self.bulk("Delete")
                self.assertIn("2 jobs", self.browser.question().text)
                if leave == "escape":
                    self.browser.type(Keys.ESCAPE)
                else:
                    [one for one in self.browser.all("dialog[open] button") if one.text == "Back"][0].click()
                eventually("the dialog is closed", lambda: not self.browser.all("dialog[open]"))
                eventually("the button has the focus again", lambda: (one := self.browser.focused()) and one.text == "Delete")
        self.assertEqual(len([one for one in self.ids("jobs") if one.startswith("left-")]), 2)

    def test_a_bulk_action_is_in_view_from_other_pages_until_it_is_stopped(self):
        self.later("slow", 30)
        self.browser.search("/jobs?state=scheduled&match=slow-")
        bar = "form[data-select]"
        self.browser.one(f"{bar} thead input[type=checkbox]").click()
        self.browser.one(f"{bar} input[name=rate]").send_keys("2")
        self.browser.press([one for one in self.browser.all(f"{bar} button") if one.text == "Run now"][0])
        self.browser.question().click()
        run = eventually("it runs", lambda: self.browser.all('dialog[open] .run[data-state="running"]'))
        self.assertTrue(run)
        close = self.browser.one("dialog[open] form[method=dialog] button")
        self.assertIn("let it run", close.text)
        close.click()
        for path in ("/queues", "/jobs"):
            self.browser.open(path)
            item = eventually("the run is in view", lambda: self.browser.all('#runs [data-run][data-state="running"]'))[0]
            self.assertRegex(item.text, r"\d+ of 30")
        self.browser.press(self.browser.one("#runs [data-run] a"))
        self.browser.submit("stop-run")
        self.browser.sees("Stopped")
        self.assertTrue([one for one in self.ids("jobs", "--state", "scheduled") if one.startswith("slow-")])
        self.browser.open("/jobs")
        eventually("its end is in view", lambda: self.browser.all('#runs [data-state="stopped"]'))

    def test_actions_on_one_job(self):
        self.scene.push(job("503", 7, id="single"))
        eventually("it waits for a retry", lambda: "single" in self.ids("jobs", "--state", "retrying"))
        self.browser.search("/jobs?id=single")
        self.browser.press(self.browser.one("tbody a[href*='/jobs/default/']"))
        self.browser.sees("ServiceUnavailable")
        send_json(f"{self.control}/rules", {"rules": ["prefix=410,answer=410"]})
        self.addCleanup(send_json, f"{self.control}/rules",
                        {"rules": ["prefix=410,answer=410", "prefix=503,answer=503"]})
        self.browser.submit("change-jobs", button="Run now")
        self.browser.confirm("1 job")
        eventually("it is accepted", lambda: any(one["accepted"] for one in notifications(self.control, token("503", 7))))

    def test_cancel_by_id(self):
        self.later("byid", 1)
        self.browser.search("/jobs?id=byid-0")
        self.browser.press(self.browser.one("tbody a[href*='/jobs/default/']"))
        before = self.redis("ZCARD", CANCELLED)
        self.browser.submit("change-jobs", _within="input[name=id]")
        self.browser.confirm("1 job")
        # The command also cancels jobs that are enqueued later.
        self.assertIn("byid-0", str(self.redis("HGETALL", "push:{default}:job-commands")))
        self.assertIn("byid-0", self.ids("dead", "--reason", "Cancelled"))
        self.assertEqual(self.redis("ZCARD", CANCELLED), before + 1)

    def test_requeue_edit_and_delete_dead_letters(self):
        self.bury(0, 5)
        self.browser.search("/dead?reason=PayloadTooLarge")
        eventually("the limit is shown", lambda: "4096" in self.browser.text.replace(",", ""))
        self.select(1)
        self.bulk("Delete")
        self.browser.confirm("1 dead letter")
        self.assertEqual(len(self.ids("dead", "--reason", "PayloadTooLarge")), 4)
        self.browser.search("/dead?reason=PayloadTooLarge")
        link = self.browser.one("tbody a[href*='/dead/default/']")
        self.browser.press(link)
        number = json.loads(self.browser.one("textarea[name=job]").get_attribute("value"))["id"].split("-")[1]
        small = json.dumps(job("ab", 900 + int(number), id=f"mended-{number}"))
        self.browser.fill(self.browser.form("edit-and-requeue"), "job", small)
        self.browser.sees("On a device")
        self.browser.submit("edit-and-requeue")
        eventually("it is sent", lambda: notifications(self.control, token("ab", 900 + int(number))))
        self.assertEqual(len(self.ids("dead", "--reason", "PayloadTooLarge")), 3)
        self.browser.search("/dead?reason=PayloadTooLarge")
        self.bulk("Requeue", everything=True)
        self.assertIn("3 jobs", self.browser.confirm("3 jobs"))
        eventually("they die again", lambda: len(self.ids("dead", "--reason", "PayloadTooLarge")) == 3)
        self.browser.search("/dead?reason=PayloadTooLarge")
        self.bulk("Delete", everything=True)
        self.browser.confirm("3 dead letters")
        self.assertEqual(self.ids("dead", "--reason", "PayloadTooLarge"), [])

    def test_an_edit_of_one_member_leaves_the_others_as_they_were(self):
        # Marks for the direction of a text, a line separator, a byte order mark, and what HTML escapes.
        alert = "\u200fשלום\u200e \u2067x\u2069\u2028 \ufeff <b>&amp; \"'\u00a0 e\u0301"
        self.scene.push({"id": "marks", "app": "none", "token": token("ab", 960),
                         "payload": {"aps": {"alert": alert}, "note": alert}})
        link = eventually("it is dead", lambda: self.ids("dead", "--id", "marks") and self.browser.search(
            "/dead?id=marks").one("tbody a[href*='/dead/default/']"))
        self.browser.press(link)
        self.browser.driver.execute_script("""
            const field = document.querySelector("textarea[name=job]");
            field.value = field.value.replace('"none"', '"default"');""")
        self.browser.submit("edit-and-requeue")
        sent = eventually("it is sent", lambda: notifications(self.control, token("ab", 960)))
        self.assertEqual(sent[0]["payload"], {"aps": {"alert": alert}, "note": alert})

    def test_remove_and_add_invalid_tokens(self):
        self.scene.push(*[job("410", n) for n in range(3)])
        eventually("three", lambda: self.redis("SISMEMBER", INVALID, token("410", 2)) and self.redis("SCARD", INVALID) >= 3)
        self.browser.search("/invalid?reason=Unregistered")
        self.select(1)
        self.bulk("Remove from the set")
        self.browser.confirm("1 token")
        self.assertEqual(sum(self.redis("SISMEMBER", INVALID, token("410", n)) for n in range(3)), 2)
        self.browser.search("/invalid?reason=Unregistered")
        self.bulk("Remove from the set", everything=True)
        self.browser.confirm("2 tokens")
        self.assertEqual(sum(self.redis("SISMEMBER", INVALID, token("410", n)) for n in range(3)), 0)
        self.browser.open("/invalid")
        self.browser.submit("add-invalid-tokens", tokens=token("f0") + "\n" + token("f1"), reason="Uninstalled")
        self.assertEqual([self.redis("SISMEMBER", INVALID, token(one)) for one in ("f0", "f1")], [1, 1])
        self.browser.open("/devices/" + token("f0"))
        self.browser.sees("Uninstalled")
        self.browser.submit("remove-invalid-tokens")
        self.browser.confirm("1 token")
        self.assertEqual(self.redis("SISMEMBER", INVALID, token("f0")), 0)

    def test_campaign(self):
        self.later("tour", 5, campaign="tour")
        self.browser.open("/campaigns/tour")
        self.browser.submit("pause-campaign", reason="typo in the text")
        self.browser.sees("typo in the text")
        self.assertIn("paused", self.scene.run("campaign", "show", "tour", "--json", check=False).stdout)
        self.scene.push(*[job("ca", n, campaign="tour", id=f"tour-now-{n}") for n in range(3)])
        time.sleep(2)
        self.assertEqual(notifications(self.control, token("ca", 0)), [])
        self.browser.open("/campaigns/tour")
        self.browser.submit("resume-campaign")
        eventually("they are sent", lambda: all(notifications(self.control, token("ca", n)) for n in range(3)))
        self.browser.open("/campaigns/tour")
        self.browser.submit("limit-campaign", per_second="7")
        self.browser.open("/campaigns")
        eventually("the limit is shown", lambda: re.search(r"\b7 ?(/s|per second)", self.browser.text))
        self.browser.open("/campaigns/tour")
        self.browser.submit("cancel-campaign", reason="never mind")
        self.browser.confirm("Cancel the campaign")
        self.scene.push(*[job("cb", n, campaign="tour", id=f"tour-cancelled-{n}") for n in range(2)])
        eventually("they are cancelled", lambda: len(
            [one for one in self.ids("dead", "--reason", "Cancelled", "--campaign", "tour") if one.startswith("tour-cancelled")]) == 2)
        self.assertEqual(notifications(self.control, token("cb", 0)), [])
        self.browser.open("/campaigns/tour")
        self.browser.submit("requeue-campaign")
        self.browser.confirm("Send the campaign")
        eventually("they are sent", lambda: all(notifications(self.control, token("cb", n)) for n in range(2)))

    def test_try_it(self):
        self.browser.open("/try")
        self.browser.sees("From the dashboard")
        form = self.browser.form("enqueue")
        bad = json.dumps({"token": token("ad"), "payload": {"aps": {"alert": "y" * 5000}}})
        self.browser.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            form.find_element("name", "job"), bad)
        self.browser.sees("4096")
        self.browser.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            form.find_element("name", "job"), json.dumps(job("ad", alert=None) | {"payload": {"aps": {"alert": {
                "title": "<i>Title</i>", "body": "Grüße 😀"}}}}).replace('"alert": null, ', ""))
        eventually("the preview", lambda: "<i>Title</i>" in self.browser.one("#verdicts").text)
        self.browser.press([one for one in form.find_elements("tag name", "button") if one.text == "Send"][0])
        # The page asks first and names the destination, because the notification may be real.
        dialog = self.browser.one("dialog#ask[open]")
        self.assertIn("ad000000", dialog.text)
        self.assertEqual(notifications(self.control, token("ad")), [])
        self.browser.press(dialog.find_element("css selector", "button[value=send]"))
        self.browser.sees("The job is enqueued")
        found = eventually("it is sent", lambda: notifications(self.control, token("ad")))
        self.assertEqual(found[0]["payload"]["aps"]["alert"]["body"], "Grüße 😀")

    def test_the_fields_of_try_it_change_their_members_only(self):
        self.browser.driver.execute_script("localStorage.clear()")
        self.browser.open("/try")
        text = '{ "token":"00ab",\n "custom": {"n": 12345678901234567890, "e": 1e2}, "payload": {"aps": {"alert": {"title": "a", "body": "b"}}}}'
        field = self.browser.one("textarea[name=job]")
        self.browser.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", field, text)
        for name, value in (("token", token("ae")), ("title", 'A "b" \\ c'), ("body", "d $& e")):
            one = self.browser.one(f"[data-member={name}]")
            one.clear()
            one.send_keys(value)
        expected = text.replace('"00ab"', json.dumps(token("ae"))).replace('"title": "a"', '"title": "A \\"b\\" \\\\ c"')
        self.assertEqual(field.get_property("value"), expected.replace('"body": "b"', '"body": "d $& e"'))
        # The page begins with the token of the last test.
        self.browser.driver.execute_script(f"localStorage.setItem('try-token', '{token('ae')}')")
        self.browser.open("/try")
        self.assertEqual(self.browser.one("[data-member=token]").get_property("value"), token("ae"))
        self.browser.open("/try?token=" + token("af"))
        self.assertEqual(self.browser.one("[data-member=token]").get_property("value"), token("af"))


del Live

if __name__ == "__main__":
    unittest.main(verbosity=2)
