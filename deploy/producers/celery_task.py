#!/usr/bin/env python3
"""Enqueues a push from a Celery task. The task only writes the job; the worker sends it, retries it and keeps dead letters.

    REDIS_URL=redis://127.0.0.1:6379 ./celery_task.py [TOKEN [TEXT]]     (runs the task in this process)
"""
import json
import os
import sys
import time

import redis
from celery import Celery

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")

app = Celery("shop", broker=URL)
connection = redis.Redis.from_url(URL)


@app.task(bind=True, autoretry_for=(redis.ConnectionError,), retry_backoff=True)
def push(self, token, text):
    # If Celery runs the task twice, its id stays the same, so both notifications have the same apns-id.
    connection.rpush("push:{default}:jobs", json.dumps({
        "id": self.request.id, "token": token, "alert": text, "enqueued_at": time.time(),
    }))


if __name__ == "__main__":
    token = sys.argv[1] if len(sys.argv) > 1 else "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    text = sys.argv[2] if len(sys.argv) > 2 else "Grüße aus Köln"
    push.apply(args=[token, text], throw=True)  # in your application: push.delay(token, text)
    print("enqueued 1 job")
