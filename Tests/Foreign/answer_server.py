"""An APNs server with Python's h2, for tests: it sends any answer, valid or not, selected by the device token.

usage: answer_server.py --answers JSON --certificate FILE --key FILE

The JSON maps the first two digits of device tokens to answers. The members of an answer are all optional:
  headers  [[name, value], …], in their order; [[":status", "200"]] by default
  interim  headers of an interim response, sent first
  body     the text of the body
  repeat   the number of times that the body is sent
  trailers [[name, value], …]
  early    true to answer before the request's body has arrived
Other tokens get 200.

Prints {"port":N} when it listens and, at SIGTERM, its account as JSON. The device token identifies a notification.
"""

import asyncio
import json

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

import serve

OK = [[":status", "200"]]


class Account:
    def __init__(self, answers):
        self.answers = answers
        self.requests, self.violations = [], []
        self.ids = {}
        self.changed = 0

    def answer(self, request):
        token = request[":path"].rpartition("/")[2]
        self.requests.append(token)
        if self.ids.setdefault(token, request.get("apns-id")) != request.get("apns-id"):
            self.changed += 1
        return self.answers.get(token[:2], {})

    def json(self):
        counts = dict.fromkeys(["goAways", "resets", "cuts", "settings", "restarts"], 0)
        sums = {"requests": len(self.requests), "accepted": len(self.requests), "distinct": len(self.ids)}
        return json.dumps(counts | sums | {"changedIDs": self.changed, "violations": self.violations})


class Connection(asyncio.Protocol):
    def __init__(self, account):
        self.account = account
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False))
        self.requests, self.bodies = {}, {}

    def connection_made(self, transport):
        self.transport = transport
        self.h2.local_settings = h2.settings.Settings(
            client=False, initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 100})
        self.h2.initiate_connection()
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data):
        try:
            for event in self.h2.receive_data(data):
                self.received(event)
            self.go_on()
        except h2.exceptions.ProtocolError as error:
            self.account.violations.append(repr(error))
        self.transport.write(self.h2.data_to_send())

    def received(self, event):
        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.RequestReceived):
            request = {name.decode(): value.decode() for name, value in event.headers}
            answer = self.account.answer(request)
            if answer.get("early"):
                self.answer(stream, answer)
            else:
                self.requests[stream] = answer
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.StreamEnded):
            if stream in self.requests:
                self.answer(stream, self.requests.pop(stream))
        elif isinstance(event, h2.events.StreamReset):
            self.requests.pop(stream, None)
            self.bodies.pop(stream, None)

    def answer(self, stream, answer):
        if "interim" in answer:
            self.h2.send_headers(stream, answer["interim"])
        body = answer.get("body", "").encode() * answer.get("repeat", 1)
        trailers = answer.get("trailers")
        self.h2.send_headers(stream, answer.get("headers", OK), end_stream=not body and trailers is None)
        if body or trailers is not None:
            self.bodies[stream] = (body, trailers)

    # Sends as much of the bodies as the client's windows allow.
    def go_on(self):
        for stream, (body, trailers) in list(self.bodies.items()):
            try:
                while body:
                    size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(body))
                    if size == 0:
                        break
                    self.h2.send_data(stream, body[:size], end_stream=size == len(body) and trailers is None)
                    body = body[size:]
                if not body and trailers is not None:
                    self.h2.send_headers(stream, trailers, end_stream=True)
            except h2.exceptions.StreamClosedError:
                # The client has cancelled the stream.
                body = b""
            if body:
                self.bodies[stream] = (body, trailers)
            else:
                del self.bodies[stream]


def main():
    parser = serve.parser()
    parser.add_argument("--answers", type=json.loads, required=True)
    arguments = parser.parse_args()
    account = Account(arguments.answers)
    serve.serve(arguments, account, lambda: Connection(account))


main()
