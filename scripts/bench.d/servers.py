"""The servers of the measurements, on 127.0.0.1."""

import json
import os
import shutil
import socket
import tempfile

from programs import Failed, Program, await_true
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
    """apns-simulator, which answers at once, or after 20±5 ms and so out of order."""

    # The port for workers.
    listening = "port"

    def __init__(self, bench, setting, *options):
        self.account_file = os.path.join(bench.directory, "simulator.json")
        if setting == "delayed":
            options = ("--delay", DELAY, *options)
        certificates = bench.certificates
        self.program = Program(
            "apns-simulator", [
                f"{bench.bin}/apns-simulator", "--certificate", f"{certificates}/server.pem",
                "--key", f"{certificates}/server-key.pem",
                "--provider-key", f"{bench.key_id}:{bench.team_id}:{bench.key}",
                "--initial-streams", 1000, "--account", self.account_file, "--quiet", *options,
            ], bench.server_cores, bench.directory)
        await_true(lambda: self.program.said().endswith("\n") or self.program.has_ended(), "the simulator listens")
        if self.program.has_ended():
            raise self.program.failed("did not start")
        self.port = json.loads(self.program.said())[self.listening]

    def stop(self):
        """Stops it and returns its account."""
        self.program.stop()
        with open(self.account_file, encoding="utf-8") as file:
            return json.load(file)


class Gateway(Simulator):
    """The simulator's binary gateway. It does not answer accepted notifications."""

    listening = "gateway_port"

    def __init__(self, bench):
        super().__init__(bench, "at once", "--gateway-port", 0, "--client-ca", f"{bench.certificates}/ca.pem")


class Nginx:
    """A third-party server. It answers as soon as HEADERS arrive, and has no account."""

    module = None
    rules = "location /3/device/ { return 200; }"
    configuration = """
{load} daemon off; master_process off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {certificates}/server.pem; ssl_certificate_key {certificates}/server-key.pem;
        http2_max_concurrent_streams 500; keepalive_requests 1000000;
        {rules}
    }}
}}
"""

    def __init__(self, bench, setting):
        if setting != "at once":
            raise Failed("nginx can only answer at once")
        if self.module and not os.path.exists(self.module):
            raise Failed(f"{self.module} is missing; it is in Debian's package libnginx-mod-http-echo")
        if not shutil.which("nginx"):
            raise Failed("nginx is missing; it is in Debian's package nginx-light")
        self.port = free_port()
        self.own = tempfile.mkdtemp(dir=bench.directory)
        path = os.path.join(self.own, "nginx.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.configuration.format(
                directory=self.own, port=self.port, certificates=bench.certificates, rules=self.rules,
                load=f"load_module {self.module};" if self.module else ""))
        self.program = Program(
            "nginx", [shutil.which("nginx"), "-p", self.own, "-e", f"{self.own}/error.log", "-c", path],
            bench.server_cores, bench.directory)
        await_true(lambda: accepts(self.port) or self.program.has_ended(), "nginx listens")
        if self.program.has_ended():
            raise self.program.failed("did not start")

    def stop(self):
        self.program.stop()


class NginxBody(Nginx):
    """nginx that reads the whole body with the echo module, then answers 200 with the `apns-id` of the request.

    Not nghttpd: it answers 200 to any path only with --echo-upload, which writes each body to a file and returns it.
    """

    module = "/usr/lib/nginx/modules/ngx_http_echo_module.so"
    # With the default index of 32 entries, nginx searches a long list for the stream of each DATA frame.
    rules = """http2_streams_index_size 1024;
        location /3/device/ { echo_read_request_body; echo_exec @answer; }
        location @answer { add_header apns-id $http_apns_id; return 200; }"""


SERVERS = {"simulator": Simulator, "nginx": Nginx, "nginx-body": NginxBody}
