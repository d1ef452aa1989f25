"""An APNs server with Python's h2, for tests: small windows, changing tables and limits, late and split answers.

usage: h2_server.py --certificate FILE --key FILE

Prints {"port":N} when it listens and, at SIGTERM, its account as JSON. The device token identifies a notification.
"""

import asyncio
import json
import random

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

import serve

Codes = h2.settings.SettingCodes


class Account:
    def __init__(self):
        self.counts = dict.fromkeys(["requests", "changedIDs", "goAways", "resets", "cuts", "settings", "restarts"], 0)
        self.accepted = {}
        self.ids = {}
        self.violations = []

    def arrived(self, path, identifier):
        self.counts["requests"] += 1
        if not path.startswith("/3/device/") or not identifier:
            self.violations.append(f"a request for {path} with the apns-id {identifier}")
        if self.ids.setdefault(path, identifier) != identifier:
            self.counts["changedIDs"] += 1
        return self.counts["requests"]

    def accept(self, path):
        self.accepted[path] = self.accepted.get(path, 0) + 1

    def json(self):
        sums = {"accepted": sum(self.accepted.values()), "distinct": len(self.accepted), "violations": self.violations}
        return json.dumps(self.counts | sums)


class Connection(asyncio.Protocol):
    def __init__(self, account, dice):
        self.account, self.dice = account, dice
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.requests = {}
        self.waiting = []
        self.is_closing = False

    def connection_made(self, transport):
        self.transport = transport
        self.h2.local_settings = h2.settings.Settings(
            client=False, initial_values={Codes.MAX_CONCURRENT_STREAMS: 100, Codes.INITIAL_WINDOW_SIZE: 10})
        self.h2.initiate_connection()
        self.flush()

    def connection_lost(self, error):
        self.is_closing = True

    def flush(self):
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data):
        if self.is_closing:
            return
        try:
            events = self.h2.receive_data(data)
            # After the client's GOAWAY, which can be in the same bytes as a request, h2 sends nothing.
            self.is_closing = any(isinstance(event, h2.events.ConnectionTerminated) for event in events)
            for event in events:
                self.received(event)
        except h2.exceptions.ProtocolError as error:
            self.account.violations.append(repr(error))
            self.is_closing = True
        self.flush()
        if self.is_closing:
            self.transport.close()

    def received(self, event):
        if self.is_closing:
            return
        if isinstance(event, h2.events.RequestReceived):
            self.requests[event.stream_id] = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h2.events.DataReceived):
            # Grants windows in small pieces: first for the stream, later for the connection.
            length = event.flow_controlled_length
            if event.stream_ended is None:
                self.h2.increment_flow_control_window(max(length, 1), event.stream_id)
            asyncio.get_running_loop().call_later(self.dice.uniform(0, 0.002), self.grant, length)
        elif isinstance(event, h2.events.StreamEnded):
            self.ask(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.requests.pop(event.stream_id, None)

    def grant(self, length):
        if length and not self.is_closing:
            self.h2.increment_flow_control_window(length)
            self.flush()

    def ask(self, stream):
        request = self.requests.pop(stream)
        number = self.account.arrived(request[":path"], request.get("apns-id"))
        chance = self.dice.random()
        if chance < 0.05:
            self.reset(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif chance < 0.07:
            if chance < 0.06:
                self.account.accept(request[":path"])
            self.reset(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        else:
            self.waiting.append((stream, request))
            if len(self.waiting) == 1:
                asyncio.get_running_loop().call_later(self.dice.uniform(0, 0.02), self.answer_all)
        if number % 400 == 0:
            self.go_away(stream)
        elif number % 50 == 0:
            self.change_settings(number // 50)

    def reset(self, stream, code):
        self.account.counts["resets"] += 1
        self.h2.reset_stream(stream, code)

    def change_settings(self, number):
        self.account.counts["settings"] += 1
        self.h2.update_settings({
            Codes.HEADER_TABLE_SIZE: [0, 65536, 4096, 100][number % 4],
            Codes.MAX_CONCURRENT_STREAMS: [3, 100, 17, 1, 1000][number % 5],
            Codes.INITIAL_WINDOW_SIZE: [10, 65535, 30][number % 3],
        })

    # Answers in random order, one in ten in pieces with padding.
    def answer_all(self):
        if self.is_closing:
            return
        waiting, self.waiting = self.waiting, []
        self.dice.shuffle(waiting)
        for stream, request in waiting:
            self.account.accept(request[":path"])
            headers = [(":status", "200"), ("apns-id", request["apns-id"])]
            try:
                if self.dice.random() < 0.9:
                    self.h2.send_headers(stream, headers, end_stream=True)
                    continue
                self.h2.send_headers(stream, headers)
                for byte in b"{}":
                    self.h2.send_data(stream, bytes([byte]), pad_length=self.dice.randrange(9))
                self.h2.send_data(stream, b"", end_stream=True)
            except h2.exceptions.StreamClosedError:
                # The client has cancelled the stream.
                pass
        self.flush()

    def go_away(self, last):
        self.answer_all()
        self.account.counts["goAways"] += 1
        # h2 sends nothing after GOAWAY, so all streams up to this one were answered; later requests are ignored.
        self.h2.close_connection(last_stream_id=last)
        self.is_closing = True


def main():
    arguments = serve.parser().parse_args()
    account, dice = Account(), random.Random(1)
    serve.serve(arguments, account, lambda: Connection(account, dice))


main()
