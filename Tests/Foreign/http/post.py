"""Posts a file with requests and httpx: its bytes, and a generator of unknown length, twice over one connection."""

import sys

import httpx
import requests

url, token, path = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
body = open(path, "rb").read()


def parts():
    yield body[:1000]
    yield body[1000:]


with requests.Session() as session:
    session.trust_env = False
    for data in (body, parts()):
        print("requests", session.post(url, data=data, headers=headers, timeout=60).status_code)
with httpx.Client(trust_env=False) as client:
    for content in (body, parts()):
        print("httpx", client.post(url, content=content, headers=headers, timeout=60).status_code)
