#!/usr/bin/env python3
"""Enqueues pushes over HTTP, with the standard library alone.

    DASHBOARD_URL=https://push.example.com DASHBOARD_TOKEN=… ./enqueue_http.py [TOKEN [TEXT]]
"""
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ.get("DASHBOARD_URL", "http://127.0.0.1:8080").rstrip("/") + "/api/v1/jobs?queue=default"
SECRET = os.environ["DASHBOARD_TOKEN"]


def enqueue(jobs, attempts=10):
    """Enqueues up to 1,000 jobs, all or none, and returns their IDs."""
    body = "\n".join(map(json.dumps, jobs)).encode()
    # All attempts have the same key, because an attempt may have succeeded although its answer was lost.
    headers = {
        "Authorization": f"Bearer {SECRET}",
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": str(uuid.uuid4()),
    }
    for attempt in range(1, attempts + 1):
        try:
            with urllib.request.urlopen(urllib.request.Request(URL, body, headers), timeout=30) as answer:
                return json.load(answer)["ids"]
        except urllib.error.HTTPError as error:
            if error.code not in (429, 502, 503, 504) or attempt == attempts:
                raise SystemExit(f"refused with {error.code}: {error.read().decode()}")
            pause = int(error.headers.get("Retry-After", attempt))
        except OSError:
            if attempt == attempts:
                raise
            pause = attempt
        time.sleep(pause)


token = sys.argv[1] if len(sys.argv) > 1 else "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = sys.argv[2] if len(sys.argv) > 2 else "Grüße aus Köln"

ids = enqueue(
    {"token": f"{token[:-4]}{n:04}", "alert": text, "expiration": "1h", "enqueued_at": time.time()} for n in range(100)
)
# Only the newest job of a key is sent. Older jobs that wait are dropped.
ids += enqueue([{"id": f"courier-1742-{time.time_ns()}", "replaces": "courier-1742", "token": token, "alert": "2 km",
                 "expiration": "1h", "enqueued_at": time.time()}])
print(f"enqueued {len(ids)} jobs")
