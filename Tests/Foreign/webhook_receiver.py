"""A webhook receiver on a free port of 127.0.0.1, which checks signatures and answers as a file says.

The file contains one word, which is read at each request:
  200, 500, 422 ...  that status
  slow               200, after three seconds
  cut                the connection is closed within the answer
  silent             the connection is closed without an answer
  bad:ID,...         422 for a request with a result of one of these jobs, else 200
  sick:ID,...        500 for a request with a result of one of these jobs, else 200
  STATUS:ID,...      that status for a request with a result of one of these jobs, else 200
  STATUS after N     that status, with Retry-After: N
  STATUS until N     that status, with the time in N seconds as Retry-After

Prints {"port":N} when it listens, then a line of JSON for each request.
"""

import argparse
import base64
import hashlib
import hmac
import json
import ssl
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

arguments = argparse.ArgumentParser()
arguments.add_argument("--behaviour", required=True)
arguments.add_argument("--secret", required=True)
arguments.add_argument("--port", type=int, default=0)
arguments.add_argument("--certificate")
arguments.add_argument("--key")
arguments = arguments.parse_args()
key = base64.b64decode(arguments.secret.removeprefix("whsec_"))
printing = threading.Lock()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        is_fresh = abs(time.time() - int(self.headers["webhook-timestamp"])) < 60
        results = json.loads(body)["results"]
        ids = [result.get("id") for result in results]
        with open(arguments.behaviour) as file:
            behaviour = file.read().strip()
        status = self.status(behaviour, ids)
        record = {
            "path": self.path,
            "message": self.headers["webhook-id"],
            "signed": expected == self.headers["webhook-signature"] and is_fresh,
            "status": status,
            "ids": ids,
            "entries": [result["entry"] for result in results],
            "type": self.headers["Content-Type"],
            "at": time.time(),
        }
        with printing:
            print(json.dumps(record), flush=True)
        if behaviour == "slow":
            time.sleep(3)
        if behaviour == "silent":
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        words = behaviour.split()
        if words[1:2] == ["after"]:
            self.send_header("Retry-After", words[2])
        if words[1:2] == ["until"]:
            self.send_header("Retry-After", formatdate(time.time() + int(words[2]), usegmt=True))
        self.send_header("Content-Length", "100" if behaviour == "cut" else "2")
        self.end_headers()
        self.wfile.write(b"ok")
        if behaviour == "cut":
            self.close_connection = True

    @staticmethod
    def status(behaviour, ids):
        if behaviour[:3].isdigit() and ":" not in behaviour:
            return int(behaviour[:3])
        word, _, chosen = behaviour.partition(":")
        if set(chosen.split(",")) & set(ids):
            return {"bad": 422, "sick": 500}.get(word) or (int(word) if word.isdigit() else 200)
        return 200

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Receiver)
if arguments.certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments.certificate, arguments.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(json.dumps({"port": server.server_address[1]}), flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
