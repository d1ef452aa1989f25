"""A Redis server, a worker with its simulator, and a dashboard, for the browser tests and the screenshots in the docs."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


# A generous limit in seconds, so that a slow machine fails no test.
LIMIT = 180


def eventually(what, condition):
    """Waits for the condition's first true value and returns it. Raises AssertionError after a timeout."""
    first, last = time.monotonic(), None
    while (start := time.monotonic()) < first + LIMIT:
        try:
            value = condition()
            if value:
                return value
            last = value
        except Exception as error:
            # A live update can replace a part of the page while it is read.
            is_replaced = any(words in str(error) for words in ("stale element", "not interactable"))
            if not is_replaced and not isinstance(error, (AssertionError, OSError, LookupError)):
                raise
            last = error
        # The pause grows with the duration of a try, and with the whole wait.
        now = time.monotonic()
        time.sleep(max(0.05, min(4 * (now - start), 0.4), min((now - first) / 10, 1)))
    raise AssertionError(f"not within {LIMIT} s: {what}; last: {last!r}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def token(prefix, number=0):
    """Returns a device token with a prefix of hex digits, which selects a rule of the simulator."""
    return prefix + f"{number:0{64 - len(prefix)}x}"


class Scene:
    """Processes in a temporary directory, which end with the scene."""

    def __init__(self):
        built = os.environ.get("BUILT_PROGRAMS", str(ROOT / ".build-test/release"))
        self.worker_program = str(Path(built).resolve() / "apns-worker")
        self.directory = Path(tempfile.mkdtemp(prefix="dashboard-"))
        self.processes = []
        self.redis_port = None

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name, command, environment=None):
        log = open(self.directory / f"{name}.log", "ab")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("APNS_WORKER_")}
        clean.update(environment or {})
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=clean, cwd=self.directory)
        log.close()
        self.processes.append(process)
        return process

    def log(self, name):
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def logs(self, name, text):
        """Waits until a text is in a log: a line may be written after the answer to its request."""
        eventually(f"{name} logs {text}", lambda: text in self.log(name))

    def logged(self, name, pattern, process):
        """Waits until a pattern is in a log and returns its first group."""
        def find():
            found = re.search(pattern, self.log(name))
            if not found and process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{self.log(name)}")
            return found and found.group(1)
        return eventually(f"{name} logs {pattern}", find)

    # Redis

    def start_redis(self, *options):
        self.redis_port = free_port()
        process = self.start("redis", [
            "redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--dir", str(self.directory), *options])
        self.logged("redis", r"(Ready to accept connections)", process)

    @property
    def redis_url(self):
        return f"redis://127.0.0.1:{self.redis_port}"

    def redis(self, *arguments):
        """Returns the reply to a command, as decoded by redis-py."""
        import redis
        if not hasattr(self, "_client"):
            self._client = redis.Redis(port=self.redis_port, decode_responses=True)
        return self._client.execute_command(*arguments)

    def push(self, *jobs, queue="default"):
        self.redis("RPUSH", f"push:{{{queue}}}:jobs", *[
            one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in jobs])

    # The programs

    def start_worker(self, *options, name="worker", queue="default", environment=None):
        """Starts a worker; returns its process and the URL of the simulator's control port."""
        process = self.start(name, [
            self.worker_program, "run", "--simulate", "--redis", self.redis_url, "--queue", queue, "--lanes", "1",
            "--log-format", "text", *options], environment)
        control = self.logged(name, r" control=(\S+)", process)
        return process, f"http://{control}"

    def start_web(self, *options, name="web", queue="default", environment=None):
        """Starts a dashboard; returns its process and its URL, without a trailing slash."""
        process = self.start(
            name, [self.worker_program, "web", "--port", "0", "--queue", queue, *options],
            {"APNS_WORKER_REDIS_URL": self.redis_url, **(environment or {})})
        return process, self.logged(name, r"(?m)^dashboard  (\S+)$", process).rstrip("/")

    def run(self, *arguments, text=None, check=True):
        environment = {**os.environ, "APNS_WORKER_REDIS_URL": self.redis_url or ""}
        return subprocess.run(
            [self.worker_program, *arguments], input=text, text=True, capture_output=True, check=check, timeout=LIMIT,
            env=environment, cwd=self.directory)

    def user(self, name, role, password):
        """Returns a line for the file of users."""
        return self.run("web-user", name, "--role", role, text=password + "\n").stdout


def get_json(url):
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return json.load(answer)


def notifications(control, device):
    """Returns the notifications for a token that the simulator has received."""
    return get_json(f"{control}/notifications?token={device}")["notifications"]


def send_json(url, value, method="PUT"):
    request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)
