#!/usr/bin/env python3
"""Enqueues pushes with redis-py.

    REDIS_URL=redis://127.0.0.1:6379 ./enqueue.py [TOKEN [TEXT]]
"""
import json
import os
import sys
import time

import redis

JOBS = "push:{default}:jobs"

token = sys.argv[1] if len(sys.argv) > 1 else "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = sys.argv[2] if len(sys.argv) > 2 else "Grüße aus Köln"

connection = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))

# The shortest job. Durations and delays count from `enqueued_at`, or else from the time when a worker first sees the job.
connection.rpush(JOBS, json.dumps({"token": token, "alert": text, "enqueued_at": time.time()}))

# With an id, a job that is enqueued twice keeps its apns-id.
connection.rpush(JOBS, json.dumps({
    "id": "order-1742-shipped",
    "token": token,
    "alert": {"title": "Your order", "body": text},
    "badge": 1,
    "sound": "default",
    "priority": 10,
    "expiration": "1h",
    "enqueued_at": time.time(),
    "collapse_id": "order-1742",
    "custom": {"order": 1742},
}))

# Many jobs: RPUSH accepts several at once. Some hundred at a time keep the requests small.
jobs = [
    {"id": f"news-{n}", "token": f"{token[:-4]}{n:04}", "alert": text, "enqueued_at": time.time()} for n in range(100)
]
connection.rpush(JOBS, *map(json.dumps, jobs))

# Only the newest job of a key is sent. Older jobs that wait are dropped. SET and RPUSH belong in one transaction.
for n in range(2):
    job = {"id": f"courier-1742-{n}", "replaces": "courier-1742", "token": token, "alert": f"{2 - n} km", "expiration": "1h",
           "enqueued_at": time.time()}
    transaction = connection.pipeline(transaction=True)
    transaction.set("push:{default}:newest:courier-1742", job["id"], ex=86400)
    transaction.rpush(JOBS, json.dumps(job))
    transaction.execute()


def set_of(token, environment):
    """The set that has a token if it is invalid for the app's topic. `invalid reshard` divides the set by the tokens' first digits."""
    name = "invalid-tokens:sandbox" if environment == "sandbox" else "invalid-tokens"
    shards = int((connection.get("push:{shared}:invalid-tokens:division") or b"1").split()[0])
    if shards == 1:
        return "push:{shared}:" + name
    shard = int(token[:4].ljust(4, "0"), 16) * shards >> 16
    return f"push:{{shared.{shards}.{shard}}}:{name}:{token[4:5] or '0'}"


# A token in the set of its environment gets no pushes until the device registers again.
token = token.lower()
if connection.sismember(set_of(token, os.environ.get("APNS_ENVIRONMENT", "production")), token):
    print("enqueued 104 jobs; the token is invalid")
else:
    print("enqueued 104 jobs; the token is not known to be invalid")
