"""The consumers of `peers`: programs that a user could run instead of a worker."""

import json
import os
import shutil
import signal
import subprocess
import sys

from programs import Failed, Program, Unavailable, await_true

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")


def go_command(bench):
    """Builds the consumer in Go from Debian's packages, without a network."""
    if not shutil.which("go"):
        raise Unavailable("go is missing; it is in Debian's package golang-go")
    path = os.path.join(bench.directory, "go-consumer")
    build = subprocess.run(
        ["go", "build", "-o", path, os.path.join(SOURCES, "consumer.go")], capture_output=True, text=True, check=False,
        env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": path + "-cache", "GOFLAGS": ""})
    if build.returncode == 0:
        return [path]
    if "cannot find package" in build.stderr:
        raise Unavailable(
            "Debian's packages golang-golang-x-net-dev and golang-github-gomodule-redigo-dev are missing:\n" + build.stderr)
    raise Failed("peers/consumer.go does not build:\n" + build.stderr)


def python_command(bench):
    """Installs the libraries of the consumer in Python from PyPI."""
    path = os.path.join(bench.directory, "python-consumer")
    for command in (
            [sys.executable, "-m", "venv", path],
            [f"{path}/bin/python", "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20", "aioapns==4.0",
             "redis[hiredis]>=5"]):
        status, output = run(command, 300)
        if status:
            raise Unavailable("cannot install aioapns from PyPI:\n" + output.strip()[-1000:])
    return [f"{path}/bin/python", "-B", os.path.join(SOURCES, "consumer.py")]


def run(command, seconds):
    """Runs a command; returns its exit status and output. If interrupted, the processes that it started end too."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return 1, f"not within {seconds} seconds"
        raise
    return process.returncode, output


COMMANDS = {"go": go_command, "python": python_command}


class Consumer:
    """A consumer, which waits for jobs."""

    commands = {}

    def __init__(self, bench, name, redis, peer):
        if name not in Consumer.commands:
            Consumer.commands[name] = COMMANDS[name](bench)
        self.program = Program(
            f"{name}-consumer", [
                *Consumer.commands[name], "--redis-port", redis.port, "--port", peer.port,
                "--authority", f"{bench.certificates}/ca.pem", "--key", bench.key, "--key-id", bench.key_id,
                "--team-id", bench.team_id,
            ], bench.client_cores(1), bench.directory)
        await_true(lambda: "ready" in self.program.said() or self.program.has_ended(), f"the {name} consumer waits for jobs")
        if self.program.has_ended():
            raise self.program.failed("did not start")

    def stop(self):
        """Stops it; returns its account: the number of answers by status, and the seconds from the first job to the last answer."""
        self.program.stop()
        return json.loads(self.program.said().splitlines()[-1])
