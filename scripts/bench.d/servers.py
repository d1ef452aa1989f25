"""The servers of the measurements, on 127.0.0.1."""

import json
import os
import socket

from programs import Program, await_true
from resp import Redis

DELAY = "20ms±5ms"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class RedisServer:
    def __init__(self, bench):
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.program = Program(
            "redis", ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                      "--dir", bench.directory], bench.server_cores, bench.directory)
        await_true(lambda: accepts(self.port), "redis-server listens")
        self.client = Redis(self.port)

    def stop(self):
        self.client.close()
        self.program.stop()


class Simulator:
    """apns-simulator. It answers at once, or after 20±5 ms and so out of order."""

    def __init__(self, bench, setting):
        self.account_file = os.path.join(bench.directory, "simulator.json")
        certificates = bench.certificates
        delay = ("--delay", DELAY) if setting == "delayed" else ()
        self.program = Program(
            "apns-simulator", [
                f"{bench.bin}/apns-simulator", "--certificate", f"{certificates}/server.pem",
                "--key", f"{certificates}/server-key.pem",
                "--provider-key", f"{bench.key_id}:{bench.team_id}:{bench.key}",
                "--initial-streams", 1000, "--account", self.account_file, "--quiet", *delay,
            ], bench.server_cores, bench.directory)
        await_true(lambda: self.program.said().endswith("\n") or self.program.has_ended(), "the simulator listens")
        if self.program.has_ended():
            raise self.program.failed("did not start")
        self.port = json.loads(self.program.said())["port"]

    def stop(self):
        """Stops the simulator and returns its account."""
        self.program.stop()
        with open(self.account_file, encoding="utf-8") as file:
            return json.load(file)
