#!/usr/bin/env python3
"""Enqueues a push with redis-py and waits until a replica has it, so that a failover does not lose it.

    REDIS_URL=redis://127.0.0.1:6379 REPLICAS=1 ./enqueue_confirmed.py [TOKEN [TEXT]]
"""
import json
import os
import sys
import time

import redis

JOBS = "push:{default}:jobs"
REPLICAS = int(os.environ.get("REPLICAS", "1"))
TIMEOUT_MS = 1000

token = sys.argv[1] if len(sys.argv) > 1 else "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = sys.argv[2] if len(sys.argv) > 2 else "Grüße aus Köln"

connection = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))


def enqueue(*jobs):
    """Returns True if enough replicas have the jobs. Otherwise they are in the queue, but a failover may lose them."""
    # A pipeline uses one connection. WAIT covers the writes of its own connection, so both commands must share it.
    pipeline = connection.pipeline(transaction=False)
    pipeline.rpush(JOBS, *(json.dumps(job) for job in jobs))
    pipeline.wait(REPLICAS, TIMEOUT_MS)
    return pipeline.execute()[1] >= REPLICAS


# With unique_for, a repeated job is not sent again, so it can be pushed until it is confirmed.
job = {"id": "order-1742-shipped", "unique_for": "1h", "token": token, "alert": text, "enqueued_at": time.time()}
if not any(enqueue(job) for _ in range(3)):
    sys.exit(f"enqueued 1 job, but fewer than {REPLICAS} replicas have it: a failover may lose it")
print(f"enqueued 1 job, and {REPLICAS} replicas have it" if REPLICAS > 1 else "enqueued 1 job, and a replica has it")
