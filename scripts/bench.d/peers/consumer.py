"""A consumer of the bench's jobs in Python, with aioapns and redis-py, as a backend team would write it.

It does less than a worker, in its favor: it pops many jobs at once without a lease, so that a crash loses them, keeps nothing in
Redis, and retries nothing. It has one connection to the server.

On SIGTERM it ends after the last answer, and prints the number of answers by status, and the seconds from the first job to the
last answer, as a line of JSON.
"""

import argparse
import asyncio
import collections
import json
import signal
import ssl
import sys
import time

import redis.asyncio
from aioapns import APNs, NotificationRequest, PushType
from aioapns.connection import APNsDevelopmentClientProtocol

# The pause after an empty list, in seconds.
PAUSE = 0.01


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("--authority", "--key", "--key-id", "--team-id"):
        parser.add_argument(name, required=True)
    for name in ("--port", "--redis-port"):
        parser.add_argument(name, required=True, type=int)
    parser.add_argument("--window", type=int, default=100, help="requests in flight, and jobs in one pop")
    return parser.parse_args()


class Consumer:
    def __init__(self, options):
        # aioapns has no option for a host other than Apple's.
        APNsDevelopmentClientProtocol.APNS_SERVER = "localhost"
        APNsDevelopmentClientProtocol.APNS_PORT = options.port
        context = ssl.create_default_context(cafile=options.authority)
        context.set_alpn_protocols(["h2"])
        with open(options.key, encoding="ascii") as file:
            key = file.read()
        self.client = APNs(
            key=key, key_id=options.key_id, team_id=options.team_id, topic="com.example.app", use_sandbox=True,
            ssl_context=context, max_connections=1)
        self.redis = redis.asyncio.Redis(port=options.redis_port)
        self.window = options.window
        self.jobs = asyncio.Queue(options.window)
        self.answers = collections.Counter()
        self.began = self.ended = 0.0
        self.is_running = True

    async def run(self):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        senders = [asyncio.create_task(self.send()) for _ in range(self.window)]
        await self.redis.ping()
        print("ready", flush=True)
        while self.is_running:
            jobs = await self.redis.lpop("push:{default}:jobs", self.window)
            if not jobs:
                await asyncio.sleep(PAUSE)
                continue
            self.began = self.began or time.monotonic()
            for job in jobs:
                await self.jobs.put(job)
        await self.jobs.join()
        for sender in senders:
            sender.cancel()
        await self.redis.aclose()
        print(json.dumps({"answers": self.answers, "seconds": self.ended - self.began}))

    def stop(self):
        self.is_running = False

    async def send(self):
        while True:
            job = json.loads(await self.jobs.get())
            request = NotificationRequest(
                device_token=job["token"], message=job["payload"], apns_topic=job["topic"], priority=job["priority"],
                push_type=PushType(job["push_type"]))
            try:
                result = await self.client.send_notification(request)
                self.answers[result.status] += 1
            # A consumer must not end because of one notification.
            except Exception as error:
                print(f"consumer: {error!r}", file=sys.stderr)
                self.answers["error"] += 1
            self.ended = time.monotonic()
            self.jobs.task_done()


async def main():
    await Consumer(arguments()).run()


asyncio.run(main())
