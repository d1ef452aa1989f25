"""Sends notifications with aioapns, an APNs client that many Python programs use, for tests.

usage: aioapns_client.py --port PORT --authority FILE --key FILE --count N

Prints the number of each answer, and the answers to some invalid requests, as JSON.
"""

import argparse
import asyncio
import collections
import json
import ssl

from aioapns import APNs, NotificationRequest, PushType
from aioapns.connection import APNsDevelopmentClientProtocol


def text(result):
    return result.status if result.is_successful else f"{result.status} {result.description}"


async def main():
    parser = argparse.ArgumentParser()
    for name in ["--authority", "--key"]:
        parser.add_argument(name, required=True)
    for name in ["--port", "--count"]:
        parser.add_argument(name, required=True, type=int)
    arguments = parser.parse_args()
    # aioapns has no option for a host other than Apple's.
    APNsDevelopmentClientProtocol.APNS_SERVER = "localhost"
    APNsDevelopmentClientProtocol.APNS_PORT = arguments.port
    context = ssl.create_default_context(cafile=arguments.authority)
    context.set_alpn_protocols(["h2"])
    with open(arguments.key, encoding="ascii") as file:
        key = file.read()

    def connect():
        return APNs(key=key, key_id="ABC123DEFG", team_id="TEAM123456", topic="com.example.app", use_sandbox=True,
                    ssl_context=context, max_connections=2)

    async def send(client, token, message=None, **more):
        request = NotificationRequest(
            device_token=token, message=message or {"aps": {"alert": "Hello"}}, **{"push_type": PushType.ALERT, **more})
        return text(await client.send_notification(request))

    client = connect()
    results = await asyncio.gather(*(send(client, f"{number:064x}") for number in range(arguments.count)))
    # Each on its own connection: aioapns 4.0 loses count of its streams when the server lowers their limit, as APNs was
    # seen to do after an error, and then waits forever.
    mistakes = {
        "token of letters": await send(connect(), "z" * 64),
        "large payload": await send(connect(), "0" * 64, {"aps": {"alert": "x" * 4096}}),
        "long collapse id": await send(connect(), "0" * 64, collapse_key="x" * 65),
        "VoIP": await send(connect(), "0" * 64, push_type=PushType.VOIP),
    }
    print(json.dumps({"answers": collections.Counter(results), "mistakes": mistakes}))


asyncio.run(main())
