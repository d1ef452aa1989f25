"""Shared by the Python servers: TLS with HTTP/2 by ALPN on a free port of 127.0.0.1, until SIGTERM.

Prints {"port":N} when it listens and, at the end, the account as JSON.
"""

import argparse
import asyncio
import json
import signal
import ssl


def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    return parser


def serve(arguments, account, connection):
    """Serves connections with the protocols that `connection` returns."""
    asyncio.run(_serve(arguments, account, connection))


async def _serve(arguments, account, connection):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments.certificate, arguments.key)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", 0, ssl=context)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    print(account.json(), flush=True)
