"""A collector of OpenTelemetry traces (OTLP over HTTP with JSON) that checks each request against the specification and prints it as a
line of JSON. The file of --behaviour has the status with which it answers, optionally followed by a body."""

import argparse
import http.server
import json
import pathlib
import re
import ssl

ID = {"traceId": 32, "spanId": 16, "parentSpanId": 16}
SPAN = {"traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "links", "status"}


def attributes(found):
    """Returns attributes by name; their values are exactly one of a text and a number, which JSON has as a text, too."""
    read = {}
    for one in found:
        assert set(one) == {"key", "value"} and one["key"] not in read, one
        (kind, value), = one["value"].items()
        assert isinstance(value, str), one
        read[one["key"]] = {"stringValue": str, "intValue": int}[kind](value)
    return read


def ids(holder, names):
    for name in names:
        assert re.fullmatch("[0-9a-f]{%d}" % ID[name], holder[name]) and set(holder[name]) != {"0"}, (name, holder)


def spans(body):
    assert set(body) == {"resourceSpans"}
    for resource_spans in body["resourceSpans"]:
        assert set(resource_spans) == {"resource", "scopeSpans"}
        resource = attributes(resource_spans["resource"]["attributes"])
        assert resource["service.name"]
        for scope_spans in resource_spans["scopeSpans"]:
            assert set(scope_spans) == {"scope", "spans"} and scope_spans["scope"]["name"]
            for span in scope_spans["spans"]:
                assert set(span) <= SPAN and span["name"] and 1 <= span["kind"] <= 5, span
                ids(span, ["traceId", "spanId"] + (["parentSpanId"] if "parentSpanId" in span else []))
                for name in ("startTimeUnixNano", "endTimeUnixNano"):
                    assert re.fullmatch("[0-9]{1,20}", span[name]), span
                assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]), span
                for link in span.get("links", []):
                    ids(link, ["traceId", "spanId"])
                assert span.get("status", {}).get("code", 0) in (0, 1, 2), span
                yield {
                    "name": span["name"], "trace": span["traceId"], "id": span["spanId"], "parent": span.get("parentSpanId"),
                    "kind": span["kind"], "links": [link["spanId"] for link in span.get("links", [])],
                    "milliseconds": (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) // 1_000_000,
                    "attributes": {name: str(value) for name, value in attributes(span["attributes"]).items()},
                    "failure": span.get("status", {}).get("message"), "service": resource["service.name"],
                }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, _, answer = pathlib.Path(options.behaviour).read_text().partition(" ")
        assert self.headers["Content-Type"] == "application/json"
        found = list(spans(json.loads(body)))
        print(json.dumps({
            "path": self.path, "token": self.headers.get("X-Token"), "status": int(status), "spans": found,
        }), flush=True)
        data = (answer or "{}").encode()
        self.send_response(int(status))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--behaviour", required=True)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--certificate")
parser.add_argument("--key")
options = parser.parse_args()
server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
if options.certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.certificate, options.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(json.dumps({"port": server.server_address[1]}), flush=True)
server.serve_forever()
