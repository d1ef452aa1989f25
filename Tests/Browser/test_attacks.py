"""An attacker in front of a dashboard: guesses, forged and stale sessions, removed users, other sites, odd requests."""

import concurrent.futures
import http.client
import json
import os
import re
import socket
import time
import unittest
import urllib.parse

from scene import LIMIT, Scene, eventually, token
from test_login import PASSWORD, Client

COOKIE = "apns-worker-session"


class Stream:
    """An open stream of a page's updates."""

    def __init__(self, client, path="/"):
        self.connection = http.client.HTTPConnection(client.address.hostname, client.address.port, timeout=LIMIT)
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        self.connection.request("GET", path, headers={"Accept": "text/event-stream", "Cookie": cookies})
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def ends(self, seconds=LIMIT):
        """Reads until the stream ends; returns False after a timeout."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.answer.read1(65536):
                return True
        return False

    def goes_on(self, seconds=5):
        return not self.ends(seconds)


class Attacker(unittest.TestCase):
    def setUp(self):
        self.scene = Scene()
        self.addCleanup(self.scene.close)
        self.scene.start_redis()
        self.scene.push({"token": token("ab"), "payload": {"aps": {"alert": "x"}}})
        self.users = self.scene.directory / "users"
        self.write("olga", "vic")

    def write(self, *names):
        """Writes the file of users: olga is an operator, others are viewers. Lines of the same users stay the same."""
        if not hasattr(self, "lines"):
            self.lines = {}
        for name in names:
            if name not in self.lines:
                self.lines[name] = self.scene.user(name, "operator" if name == "olga" else "viewer", PASSWORD)
        self.users.write_text("".join(self.lines[name] for name in names))
        self.users.chmod(0o600)

    def start(self, *options, name="web"):
        _, address = self.scene.start_web("--users", str(self.users), *options, name=name)
        return address

    def client(self, address, name="olga"):
        client = Client(address)
        self.assertEqual(client.log_in(name), 303)
        return client

    def guess(self, address, logins, headers=None):
        """Sends all at once; returns the statuses in order."""
        def one(login):
            return Client(address).ask("POST", "/login", {"name": login[0], "password": login[1]}, headers)[0]
        with concurrent.futures.ThreadPoolExecutor(len(logins)) as pool:
            return list(pool.map(one, logins))

    # Guesses

    def test_guesses_made_at_once_are_limited(self):
        address = self.start()
        statuses = self.guess(address, [("olga", f"wrong {number}") for number in range(199)] + [("olga", PASSWORD)])
        self.assertEqual(statuses.count(403) + statuses.count(303), 5)
        self.assertEqual(statuses.count(429), 195)
        refused = len(re.findall("a login was refused", self.scene.log("web")))
        self.assertLessEqual(refused, 5)

    def test_strangers_do_not_keep_a_user_out(self):
        address = self.start()
        self.guess(address, [(f"name {number}", "wrong") for number in range(150)])
        self.client(address, "vic")
        # An unknown name looks the same.
        self.assertEqual(Client(address).log_in("nobody", "wrong"), 403)

    def test_clients_of_a_trusted_proxy_are_told_apart(self):
        address = self.start("--trusted-proxy", "127.0.0.1")
        first, second = {"X-Forwarded-For": "198.51.100.1"}, {"X-Forwarded-For": "198.51.100.2"}
        self.assertIn(429, self.guess(address, [("olga", "wrong")] * 8, first))
        client = Client(address)
        self.assertEqual(client.ask("POST", "/login", {"name": "olga", "password": PASSWORD}, first)[0], 429)
        self.assertEqual(client.ask("POST", "/login", {"name": "olga", "password": PASSWORD}, second)[0], 303)
        # A value that the client wrote itself is not trusted.
        forged = {"X-Forwarded-For": "203.0.113.1, 198.51.100.1"}
        self.assertEqual(client.ask("POST", "/login", {"name": "olga", "password": PASSWORD}, forged)[0], 429)
        self.scene.logs("web", "198.51.100.1")
        other = self.start(name="web-2")
        self.guess(other, [("olga", "wrong")], first)
        eventually("a warning", lambda: "--trusted-proxy 127.0.0.1" in self.scene.log("web-2"))

    # Sessions

    def test_the_file_of_users_does_not_make_a_session(self):
        import hashlib
        import hmac
        address = self.start()
        text = self.users.read_text()
        key = hmac.new(hashlib.sha256(text.encode()).digest(), b"apns-worker dashboard session", "sha256").digest()
        content = f"{b'olga'.hex()}.{int(time.time()) + 3600}.{os.urandom(12).hex()}"
        forged = [f"{content}.{hmac.new(key, content.encode(), 'sha256').hexdigest()}", "0" * 64, "", "olga",
                  hashlib.sha256(text.splitlines()[0].encode()).hexdigest()]
        for value in forged:
            client = Client(address)
            client.cookies[COOKIE] = value
            self.assertEqual(client.ask("GET", "/")[0], 303, value)
            self.assertEqual(client.ask("POST", "/actions/pause-queue", {"queue": "default"})[0], 401, value)

    def test_redis_does_not_have_what_a_browser_sends(self):
        address = self.start()
        value = self.client(address).cookies[COOKIE]
        keys = self.scene.redis("KEYS", "*web-session*")
        self.assertEqual(len(keys), 1)
        stored = keys[0] + self.scene.redis("GET", keys[0])
        self.assertNotIn(value, stored)
        client = Client(address)
        client.cookies[COOKIE] = keys[0].split(":")[-1]
        self.assertEqual(client.ask("GET", "/")[0], 303)
        self.assertTrue(43000 < self.scene.redis("TTL", keys[0]) <= 43200)

    def test_a_session_that_has_ended_is_refused_everywhere(self):
        first, second = self.start(), self.start(name="web-2")
        client = self.client(first)
        copy, stream = Client(second), Stream(client)
        copy.cookies = dict(client.cookies)
        self.assertEqual(copy.ask("GET", "/")[0], 200, "dashboards of a Redis share sessions")
        streams = [stream, Stream(copy)]
        self.assertTrue(all(one.goes_on(3) for one in streams))
        self.assertEqual(client.ask("POST", "/logout", {"form_token": client.form_token()})[0], 303)
        self.assertEqual(copy.ask("GET", "/")[0], 303)
        again = Client(first)
        again.cookies = dict(copy.cookies)
        self.assertEqual(again.ask("GET", "/")[0], 303)
        self.assertTrue(all(one.ends() for one in streams))

    def test_a_session_survives_a_restart_and_an_outage_of_redis(self):
        address = self.start()
        client = self.client(address)
        process = self.scene.processes[-1]
        process.terminate()
        process.wait(LIMIT)
        again = Client(self.start(name="web-2"))
        again.cookies = dict(client.cookies)
        status, page = again.ask("GET", "/try")
        self.assertEqual(status, 200)
        stranger = Client(again.address.geturl())
        stranger.cookies[COOKIE] = "0" * 64
        self.scene.processes[0].terminate()
        self.scene.processes[0].wait(LIMIT)
        self.assertEqual(again.ask("GET", "/runs/1")[0], 404, "admitted")
        self.assertEqual(stranger.ask("GET", "/runs/1")[0], 303, "unknown")
        self.assertEqual(stranger.ask("GET", "/healthz")[0], 200)
        # A new login still works, and the pages report the problem.
        late = Client(again.address.geturl())
        self.assertEqual(late.log_in("vic"), 303)
        self.assertEqual(late.ask("GET", "/")[0], 503)
        form = re.search(r'name="form_token" value="([0-9a-f]+)"', page).group(1)
        self.assertEqual(again.ask("POST", "/logout", {"form_token": form})[0], 303)
        copy = Client(again.address.geturl())
        copy.cookies = dict(client.cookies)
        self.assertEqual(copy.ask("GET", "/runs/1")[0], 303)

    def test_a_full_redis_keeps_no_operator_out(self):
        address = self.start()
        self.scene.redis("CONFIG", "SET", "maxmemory", "1")
        client = self.client(address)
        self.assertEqual(client.ask("GET", "/")[0], 200)
        self.scene.logs("web", "web_session_not_stored")

    def test_a_session_does_not_come_back_with_its_user(self):
        address = self.start()
        client = self.client(address, "vic")
        self.write("olga")
        eventually("vic's session has ended", lambda: client.ask("GET", "/")[0] == 303)
        made = self.scene.run("web-user", "ci", "--role", "viewer", "--token")
        self.lines["ci"] = made.stdout
        self.write("olga", "vic", "ci")
        bearer = {"Authorization": "Bearer " + made.stderr.split()[-1]}
        eventually("the file was read", lambda: Client(address).ask("GET", "/api/v1/status", headers=bearer)[0] == 200)
        self.assertEqual(self.client(address, "vic").ask("GET", "/")[0], 200)
        self.assertEqual(client.ask("GET", "/")[0], 303)

    # Users who are removed

    def check_removal(self, change):
        """Removes vic and a token; olga stays if the change keeps her."""
        made = self.scene.run("web-user", "ci", "--role", "viewer", "--token", "--users", str(self.users))
        bearer = {"Authorization": "Bearer " + made.stderr.split()[1]}
        address = self.start()
        client = self.client(address, "vic")
        stream = Stream(client)
        self.assertEqual(client.ask("GET", "/api/v1/status", headers=bearer)[0], 200)
        change()
        eventually("vic's session has ended", lambda: client.ask("GET", "/")[0] == 303)
        eventually("the token is refused", lambda: Client(address).ask("GET", "/api/v1/status", headers=bearer)[0] == 401)
        self.assertEqual(Client(address).log_in("vic"), 403)
        self.assertTrue(stream.ends())
        return address

    def test_a_removed_user_is_out(self):
        address = self.check_removal(lambda: self.write("olga"))
        self.client(address)

    def test_a_bad_line_takes_only_its_user(self):
        def change():
            self.write("olga")
            self.users.write_text(self.users.read_text() + "vic viewer\n")
        address = self.check_removal(change)
        client = self.client(address)
        self.assertIn("line 2: a user is a name, a role and a credential", client.ask("GET", "/")[1])
        self.scene.logs("web", "web_users_unusable")

    def test_a_deleted_file_keeps_nobody_for_long(self):
        self.check_removal(self.users.unlink)
        self.scene.logs("web", "web_users_unusable")

    def test_a_secret_of_kubernetes_is_followed(self):
        mount = self.scene.directory / "mount"
        self.write("olga", "vic")
        made = self.scene.run("web-user", "ci", "--role", "viewer", "--token", "--users", str(self.users))
        self.assertIn("token", made.stderr)
        for version, names in (("..1", ("olga", "vic")), ("..2", ("olga",))):
            (mount / version).mkdir(parents=True)
            (mount / version / "users").write_text("".join(self.lines[name] for name in names))
        (mount / "..data").symlink_to("..1")
        (mount / "users").symlink_to("..data/users")
        _, address = self.scene.start_web("--users", str(mount / "users"))
        client = self.client(address, "vic")
        (mount / "..new").symlink_to("..2")
        (mount / "..new").rename(mount / "..data")
        eventually("vic's session has ended", lambda: client.ask("GET", "/")[0] == 303)
        self.client(address)

    def test_another_role_or_password_ends_the_sessions_of_that_user(self):
        address = self.start()
        olga, vic = self.client(address), self.client(address, "vic")
        self.scene.run("web-user", "olga", "--role", "viewer", "--users", str(self.users), text=PASSWORD + "\n")
        eventually("olga's session has ended", lambda: olga.ask("GET", "/")[0] == 303)
        self.assertEqual(vic.ask("GET", "/")[0], 200)
        self.assertEqual(self.client(address).ask("GET", "/try")[0], 200)

    def test_a_file_that_others_can_read_is_reported(self):
        self.users.chmod(0o644)
        address = self.start()
        client = self.client(address)
        self.assertIn("can be read or changed by", client.ask("GET", "/")[1])
        self.scene.logs("web", "can be read or changed by")
        self.users.chmod(0o600)
        eventually("no problem", lambda: "can be read or changed by" not in client.ask("GET", "/")[1])
        new = self.scene.directory / "new"
        self.scene.run("web-user", "ada", "--role", "viewer", "--users", str(new), text=PASSWORD + "\n")
        self.assertEqual(new.stat().st_mode & 0o777, 0o600)

    # Streams

    def test_only_live_pages_have_streams(self):
        address = self.start()
        client = self.client(address, "vic")
        for path in ("/jobs", "/jobs?state=waiting", "/dead", "/invalid", "/devices/" + token("ab"), "/try"):
            self.assertEqual(Stream(client, path).status, 204, path)
        for path in ("/", "/queues", "/queues/default", "/workers", "/apps", "/campaigns", "/redis", "/activity"):
            self.assertEqual(Stream(client, path).status, 200, path)

    # Programs

    def test_without_users_a_program_learns_how_to_get_a_token(self):
        _, address = self.scene.start_web()
        status, text = Client(address).ask("POST", "/api/v1/actions/pause-queue", {"queue": "default"})
        self.assertEqual(status, 403)
        self.assertIn("--users FILE", json.loads(text)["error"])

    def test_fields_are_checked_as_those_of_the_commands(self):
        address = self.start()
        client = self.client(address)
        form = {"form_token": client.form_token()}
        refused = [
            ("add-invalid-tokens", {"tokens": "abc"}), ("add-invalid-tokens", {"tokens": "０１２３"}),
            ("add-invalid-tokens", {"tokens": token("ab"), "reason": "has spaces"}),
            ("add-invalid-tokens", {"tokens": token("ab"), "reason": "x" * 256}),
            ("add-invalid-tokens", {"tokens": token("ab"), "environment": "a b"}),
            ("pause-queue", {"queue": "default", "reason": "x" * 201}),
            ("pause-queue", {"queue": "default", "reason": "e" + "\u0301" * 2000}),
            ("add-invalid-tokens", {"tokens": token("ab"), "queue": "default"}),
            ("cancel-campaign", {"campaign": "c", "reason": "x" * 100_000}),
        ]
        for action, fields in refused:
            status, text = client.ask("POST", f"/actions/{action}", {**form, **fields})
            self.assertEqual(status, 400, f"{action} {fields} {text[:300]}")
        fields = {**form, "tokens": token("ab"), "environment": "api.sandbox.push.apple.com"}
        self.assertEqual(client.ask("POST", "/actions/add-invalid-tokens", fields)[0], 303)
        facts = self.scene.redis("HVALS", "push:{shared}:invalid-tokens:facts")
        self.assertIn("sandbox", [json.loads(text).get("environment") for text in facts])

    def test_a_viewer_sees_no_token_in_a_run(self):
        address = self.start()
        olga, vic = self.client(address), self.client(address, "vic")
        form = {"form_token": olga.form_token(), "queue": "default", "scope": "all", "token": token("ab"), "action": "cancel"}
        status, _ = olga.ask("POST", "/actions/change-jobs", form)
        self.assertEqual(status, 303)
        run = urllib.parse.urlsplit(olga.headers["Location"]).path
        for path in (run, "/api/v1" + run):
            status, text = vic.ask("GET", path)
            self.assertEqual(status, 200)
            self.assertNotIn(token("ab"), text)

    # Requests

    def raw(self, address, data, wait=3):
        """Sends bytes and returns what comes back until the end, or within some seconds."""
        place = urllib.parse.urlsplit(address)
        with socket.create_connection((place.hostname, place.port), timeout=wait) as connection:
            connection.sendall(data)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except (TimeoutError, ConnectionError):
                pass
        return answer

    def test_smuggled_requests_are_refused(self):
        address = self.start()
        host = address.split("//")[1].encode()
        hidden = b"GET /smuggled HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
        for headers in (
                b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"Content-Length: 4\r\nContent-Length: 90",
                b"Transfer-Encoding: xchunked", b"Content-Length: +5", b"Content-Length: -1", b"Content-Length : 5"):
            answer = self.raw(
                address, b"POST /login HTTP/1.1\r\nHost: " + host + b"\r\n" + headers + b"\r\n\r\n0\r\n\r\n" + hidden)
            self.assertRegex(answer, rb"^HTTP/1.1 4\d\d", headers)
            self.assertLessEqual(answer.count(b"HTTP/1.1"), 2, headers)

    def test_slow_clients_do_not_keep_others_out(self):
        address = self.start()
        place = urllib.parse.urlsplit(address)
        slow = []
        for _ in range(600):
            try:
                connection = socket.create_connection((place.hostname, place.port), timeout=5)
                connection.sendall(b"POST /login HTTP/1.1\r\nHo")
                slow.append(connection)
            except OSError:
                break
        self.assertGreater(len(slow), 100)
        self.client(address, "vic")
        for connection in slow:
            connection.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
