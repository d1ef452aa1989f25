"""Users, roles and the protection against other sites: over HTTP, and in a browser behind nginx."""

import functools
import html
import http.client
import re
import ssl
import subprocess
import unittest
import urllib.parse

from browser import Browser
from scene import LIMIT, ROOT, Scene, eventually, free_port, token

PASSWORD = "correct horse battery"


class Client:
    """A client that keeps cookies and follows no redirects."""

    def __init__(self, address, context=None):
        self.address, self.cookies, self.context = urllib.parse.urlsplit(address), {}, context
        self.set_cookie = None

    def ask(self, method, path, form=None, headers=None):
        kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
        more = {"context": self.context} if self.address.scheme == "https" else {}
        connection = kind(self.address.hostname, self.address.port, timeout=LIMIT, **more)
        sent = dict(headers or {})
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, self.address.path + path, body, sent)
        answer = connection.getresponse()
        self.set_cookie = answer.headers.get("Set-Cookie")
        if self.set_cookie:
            name, value = self.set_cookie.split(";")[0].split("=", 1)
            self.cookies[name] = value
        text = answer.read().decode()
        connection.close()
        self.headers = answer.headers
        return answer.status, text

    def find(self, pattern, path):
        """Returns the first group of a pattern's first match in a list, on whichever page it is."""
        while True:
            text = self.ask("GET", path)[1]
            if found := re.search(pattern, text):
                return found.group(1)
            path = html.unescape(re.search(r'rel="next" href="([^"]+)"', text).group(1))

    def log_in(self, name, password=PASSWORD):
        return self.ask("POST", "/login", {"name": name, "password": password})[0]

    def form_token(self, path="/try"):
        return re.search(r'name="form_token" value="([0-9a-f]+)"', self.ask("GET", path)[1]).group(1)


@functools.cache
def shared_browser():
    """The browser of all tests of this module. It accepts the certificates of tests."""
    browser = Browser("", insecure=True)
    unittest.addModuleCleanup(browser.close)
    return browser


def browse(test, address):
    """Returns the browser without cookies, for the pages at an address."""
    browser = shared_browser()
    browser.base = address
    browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    # Leaves the page before its servers end.
    test.addCleanup(browser.open, "about:blank", "")
    return browser


class Login(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scene = Scene()
        cls.addClassCleanup(cls.scene.close)
        cls.scene.start_redis()
        cls.worker, cls.control = cls.scene.start_worker("--simulate-rule", "prefix=410,answer=410")
        cls.scene.push({"token": token("410"), "payload": {"aps": {"alert": "secret words"}}},
                       {"token": token("ab"), "payload": {"aps": {"alert": "secret words" * 1000}}},
                       {"token": token("cd"), "id": "later", "send_at": "2099-01-01T00:00:00Z",
                        "payload": {"aps": {"alert": "secret words"}}})
        cls.users = cls.scene.directory / "users"
        cls.users.write_text(cls.scene.user("olga", "operator", PASSWORD) + cls.scene.user("vic", "viewer", PASSWORD))
        cls.web, cls.address = cls.scene.start_web("--users", str(cls.users))
        eventually("a dead letter", lambda: cls.scene.redis("ZCARD", "push:{default}:dead") == 1)
        eventually("an invalid token", lambda: cls.scene.redis("SCARD", "push:{shared}:invalid-tokens") == 1)
        eventually("a scheduled job", lambda: "later" in cls.scene.run("jobs", "list", "--json").stdout)

    def test_pages_need_a_login(self):
        client = Client(self.address)
        for path in ("/", "/jobs?state=retrying", "/dead", "/redis"):
            status, _ = client.ask("GET", path)
            self.assertEqual((status, client.headers["Location"].split("?")[0]), (303, "/login"))
        self.assertEqual(client.ask("GET", "/api/v1/status")[0], 401)
        self.assertEqual(client.ask("POST", "/actions/pause-queue", {"queue": "default"})[0], 401)

    def test_the_cookie_is_kept_from_scripts_and_other_sites(self):
        client = Client(self.address)
        self.assertEqual(client.log_in("vic"), 303)
        for flag in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="):
            self.assertIn(flag, client.set_cookie)
        self.assertNotIn("Secure", client.set_cookie)
        client.ask("GET", "/")
        self.assertEqual(client.headers["Cache-Control"], "no-store")
        policy = client.headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        client = Client(self.address)
        client.ask("POST", "/login", {"name": "vic", "password": PASSWORD}, {"X-Forwarded-Proto": "https"})
        self.assertIn("Secure", client.set_cookie)

    def test_a_viewer_sees_masked_tokens_and_can_change_nothing(self):
        client = Client(self.address)
        client.log_in("vic")
        pages = ["/", "/jobs", "/dead", "/invalid", "/apps", "/workers", "/queues/default", "/try", "/activity",
                 "/devices/" + token("410"), "/campaigns", "/redis"]
        for path in pages + ["/api/v1/jobs", "/api/v1/dead-letters", "/api/v1/invalid-tokens"]:
            with self.subTest(path):
                status, text = client.ask("GET", path)
                self.assertEqual(status, 200)
                self.assertNotIn("secret words", text)
                self.assertNotIn('/actions/', text.replace("/actions/enqueue", "") if path == "/try" else text)
                for one in ("410", "ab", "cd"):
                    if path != "/devices/" + token("410"):
                        self.assertNotIn(token(one), text)
        for path in ("/jobs", "/dead"):
            link = client.find(rf'href="({path}/default/[0-9a-f]+[^"]*)"', path)
            _, text = client.ask("GET", link)
            self.assertNotIn("secret words", text)
            self.assertNotIn(token("cd"), text)
            self.assertNotIn(token("ab"), text)
        # A text search would reveal masked content.
        for path in ("/jobs?match=secret", "/api/v1/jobs?match=secret"):
            status, text = client.ask("GET", path)
            self.assertEqual(status, 403, text)
        self.assertNotIn('name="match"', client.ask("GET", "/jobs")[1])
        form = re.search(r'name="form_token" value="(\w+)"', client.ask("GET", "/")[1]).group(1)
        for action in ("pause-queue", "enqueue", "change-jobs", "stop-worker", "confirm-run", "add-invalid-tokens"):
            status, text = client.ask("POST", f"/actions/{action}", {"form_token": form, "queue": "default"})
            self.assertEqual(status, 403, text)
            self.assertIn("Only operators", text)
        self.assertEqual(self.scene.redis("EXISTS", "push:{default}:paused"), 0)

    def test_wrong_passwords_are_limited(self):
        client = Client(self.address)
        answers = [client.log_in("olga-2", "wrong") for _ in range(6)]
        self.assertEqual(answers, [403] * 5 + [429])
        self.assertIn("Retry-After", client.headers)
        self.assertEqual(Client(self.address).log_in("olga"), 303, "another name is not locked out")

    def test_forms_of_other_sites_are_refused(self):
        client = Client(self.address)
        client.log_in("olga")
        form = {"queue": "default", "form_token": client.form_token()}
        host = self.address.split("//")[1]
        refused = [
            ({"queue": "default"}, {}), ({**form, "form_token": "0" * 64}, {}), (form, {"Origin": "https://evil.example"}),
            (form, {"Sec-Fetch-Site": "cross-site"}), (form, {"Sec-Fetch-Site": "same-site"}), (form, {"Origin": "null"}),
        ]
        for fields, headers in refused:
            with self.subTest(headers):
                self.assertEqual(client.ask("POST", "/actions/pause-queue", fields, headers)[0], 403)
                self.assertEqual(self.scene.redis("EXISTS", "push:{default}:paused"), 0)
        other = Client(self.address)
        other.log_in("vic")
        self.assertEqual(other.ask("POST", "/actions/pause-queue", form)[0], 403, "the token belongs to a session")
        status, text = client.ask("POST", "/actions/pause-queue", form, {"Origin": f"http://{host}"})
        self.assertEqual(status, 303, text)
        self.assertEqual(self.scene.redis("EXISTS", "push:{default}:paused"), 1)
        self.assertEqual(client.ask("POST", "/actions/resume-queue", form)[0], 303)

    def test_an_altered_cookie_is_no_login_and_logging_out_ends_it(self):
        client = Client(self.address)
        client.log_in("vic")
        name, value = next(iter(client.cookies.items()))
        parts = value.split(".")
        parts[0] = "olga".encode().hex()
        client.cookies[name] = ".".join(parts)
        self.assertEqual(client.ask("GET", "/")[0], 303)
        browser = browse(self, self.address)
        browser.open("/queues")
        form = browser.one("form")
        browser.fill(form, "name", "olga")
        browser.fill(form, "password", PASSWORD)
        browser.press(form.find_element("css selector", "button"))
        self.assertEqual(browser.title, "Queues")
        self.assertIn("olga (operator)", browser.one("header").text)
        browser.press(browser.one("form.account button"))
        browser.open("/")
        self.assertEqual(browser.title, "Log in")
        self.assertEqual(browser.problems(), [])

    def test_login_leads_only_to_this_site(self):
        for to in ("//evil.example", "https://evil.example/", "/\\evil.example", "/\t/evil.example", "/%0d%0aX: y"):
            with self.subTest(to):
                client = Client(self.address)
                client.ask("POST", "/login", {"name": "vic", "password": PASSWORD, "to": to})
                self.assertRegex(client.headers["Location"], r"^/(?![/\\\s])")

    def test_a_token_for_programs(self):
        made = self.scene.run("web-user", "ci", "--role", "viewer", "--token")
        bearer = {"Authorization": "Bearer " + made.stderr.split()[-1]}
        users = self.scene.directory / "users-2"
        users.write_text(made.stdout)
        _, address = self.scene.start_web("--users", str(users), name="web-2")
        client = Client(address)
        self.assertEqual(client.ask("GET", "/api/v1/status", headers=bearer)[0], 200)
        self.assertEqual(client.ask("POST", "/api/v1/actions/pause-queue", {"queue": "default"}, bearer)[0], 403)
        self.assertEqual(client.ask("GET", "/api/v1/status", headers={"Authorization": "Bearer x"})[0], 401)


class Reached(unittest.TestCase):
    """Deployments: read-only, under a base path, with TLS, and the allowed addresses and host names."""

    def setUp(self):
        self.scene = Scene()
        self.addCleanup(self.scene.close)
        self.scene.start_redis()
        self.scene.push({"token": token("ab"), "payload": {"aps": {"alert": "x"}}})

    def test_read_only(self):
        _, address = self.scene.start_web("--read-only")
        client = Client(address)
        for path in ("/", "/jobs", "/queues/default", "/invalid"):
            self.assertNotIn("/actions/", client.ask("GET", path)[1])
        status, text = client.ask("POST", "/api/v1/actions/pause-queue", {"queue": "default"})
        self.assertEqual(status, 403)
        self.assertEqual(self.scene.redis("EXISTS", "push:{default}:paused"), 0)

    def test_other_machines_need_users(self):
        for host in ("0.0.0.0", "::"):
            done = self.scene.run("web", "--host", host, "--port", "0", check=False)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn("--users", done.stderr)

    def test_foreign_host_names_are_refused(self):
        _, address = self.scene.start_web()
        client = Client(address)
        self.assertEqual(client.ask("GET", "/", headers={"Host": "evil.example"})[0], 403)
        self.assertEqual(client.ask("GET", "/", headers={"Host": "localhost:1"})[0], 200)

    def test_tls(self):
        certificates = self.scene.directory / "certs"
        subprocess.run([str(ROOT / "scripts/make-certs"), str(certificates)], check=True, capture_output=True)
        _, address = self.scene.start_web(
            "--tls-certificate", str(certificates / "server.pem"), "--tls-key", str(certificates / "server-key.pem"))
        self.assertTrue(address.startswith("https://"))
        client = Client(address, ssl.create_default_context(cafile=str(certificates / "ca.pem")))
        self.assertEqual(client.ask("GET", "/")[0], 200)
        self.assertIn("Secure", client.set_cookie)
        browser = browse(self, address)
        browser.open("/queues/default")
        browser.submit("pause-queue", reason="by TLS")
        browser.sees("by TLS")
        self.assertEqual(browser.problems(), [])

    def test_under_a_path_of_nginx(self):
        users = self.scene.directory / "users"
        users.write_text(self.scene.user("olga", "operator", PASSWORD))
        _, address = self.scene.start_web("--base-path", "/push", "--users", str(users))
        port, directory = free_port(), self.scene.directory
        temporary = "".join(f"{one}_temp_path {directory}/{one};" for one in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (directory / "nginx.conf").write_text(f"""
            daemon off; master_process off; pid {directory}/nginx.pid; events {{ }}
            http {{ {temporary} access_log off; server {{ listen 127.0.0.1:{port};
                location /push/ {{ proxy_pass {address.removesuffix("/push")}; proxy_http_version 1.1;
                    proxy_set_header Host $http_host; }}
                location / {{ return 418; }} }} }}""")
        self.scene.start("nginx", ["/usr/sbin/nginx", "-p", str(directory), "-e", str(directory / "nginx.err"), "-c",
                                   str(directory / "nginx.conf")])
        eventually("nginx listens", lambda: (directory / "nginx.pid").exists())
        browser = browse(self, f"http://127.0.0.1:{port}/push")
        browser.open("/")
        form = browser.one("form")
        browser.fill(form, "name", "olga")
        browser.fill(form, "password", PASSWORD)
        browser.press(form.find_element("css selector", "button"))
        self.assertEqual(browser.title, "Overview")
        for index in range(12):
            browser.press(browser.all("nav[aria-label=Pages] a")[index])
            self.assertEqual(browser.problems(), [])
        browser.open("/queues/default")
        browser.submit("pause-queue", reason="behind nginx")
        browser.sees("behind nginx")
        self.assertEqual(self.scene.redis("EXISTS", "push:{default}:paused"), 1)
        eventually("live updates pass nginx", lambda: "Live" in browser.one("#live-state").text)
        self.assertEqual(browser.problems(), [])
        # A page whose session has ended keeps its numbers, says since when they are old, and leads to the login.
        figures = len(browser.all(".figure"))
        browser.driver.delete_all_cookies()
        browser.driver.execute_script("""
            Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
            for (window.isHidden of [true, false]) document.dispatchEvent(new Event("visibilitychange"))""")
        eventually("it says so", lambda: "the session has ended" in browser.one("#live-state").text)
        self.assertRegex(browser.one("#live-state").text, r"Not up to date since \d+:\d+")
        self.assertEqual(len(browser.all(".figure")), figures)
        self.assertIn("stale", browser.one("body").get_attribute("class"))
        browser.one("#live-state a").click()
        eventually("the link leads to the login", lambda: "/login" in browser.driver.current_url)


if __name__ == "__main__":
    unittest.main(verbosity=2)
