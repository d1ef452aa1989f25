"""Makes the jobs of scripts/demo, and compares the accounts of the worker, Redis and the simulator.

account.py jobs DIRECTORY COUNT                         writes jobs.ndjson, feedback and registered to the directory
account.py compare DIRECTORY COUNT PORT SECONDS BUILD   prints the account; exits with 1 if the accounts do not agree
"""

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, "scripts/bench.d")
from resp import Redis

# {job's number modulo 200: first digits of its token}. The digits decide the simulator's answer. Other tokens begin with 00fc.
PREFIXES = {10: "0410", 110: "0410", 20: "0bad", 31: "0503", 80: "0503", 131: "0503", 180: "0503", 41: "0429", 140: "0429", 51: "0105",
            90: "00fb", 190: "00fb"}
# The keys that may remain in Redis after the demo. No job, retry, claim, inbox, lease or paused app may remain.
MAY_STAY = re.compile(
    r"push:(\{default\}:(configurations|source|deliveries|dead|dead-bytes|gauges|largest|results|results-marks|next:.*|stats:[0-9-]+|minute:[0-9T:-]+)"
    r"|\{shared\}:(invalid-tokens(:facts|:changes|:details:[0-9a-f]{3})?|registrations|throttled-tokens|provider-token:.*))")


class Jobs:
    """The jobs and their expected outcomes."""

    def __init__(self, count):
        self.count, self.bodies, self.dead = count, [], []
        # The numbers of sent jobs by the first digits of their tokens, and of dead letters by reason.
        self.sent, self.reasons = Counter(), Counter()
        # Tokens whose app was removed, and those of these tokens whose app was installed again.
        self.removed, self.registered = [], []
        for number in range(1, count + 1):
            self.add(number, number % 200)
        self.invalid = self.sent["0410"] + self.sent["0bad"]
        self.delivered = count - len(self.dead) - self.invalid

    def add(self, number, kind):
        prefix, reason = PREFIXES.get(kind, "00fc"), None
        token = f"{prefix}{number:060x}"
        text = {"title": f"Order {number}", "body": "Your parcel is on its way. It will be with you between 10:00 and 12:00."}
        payload = {"aps": {"alert": text, "sound": "default", "badge": 1},
                   "order": {"number": number, "link": f"https://example.com/orders/{number}"}}
        if kind == 60:
            reason, payload = "PayloadTooLarge", {"aps": {"alert": "x" * 5120}}
        # Every second job has no ID.
        job = {} if number % 2 else {"id": f"demo-{number}"}
        job |= {"token": token, "push_type": "alert", "priority": 10, "expiration": "1h",
                "campaign": {"name": "demo", "number": number}, "payload": payload}
        body = json.dumps(job, separators=(",", ":")).encode()
        if kind == 70:
            body = (body[:150], body[:-1] + b",}", b"token=" + token.encode(), b"[" + body + b"]",
                    b'{"token":"\377\376","payload":{}}')[number // 200 % 5]
            reason = "NotAnObject" if body.startswith(b"[") else "MalformedJSON"
        self.bodies.append(body)
        if reason:
            self.dead.append(body)
            self.reasons[reason] += 1
        else:
            self.sent[prefix] += 1
        if prefix == "00fb":
            self.removed.append(token)
        if kind == 190:
            self.registered.append(token)

    def write(self, directory):
        now = int(time.time())
        (directory / "jobs.ndjson").write_bytes(b"".join(body + b"\n" for body in self.bodies))
        (directory / "feedback").write_text("".join(f"{token} {now}\n" for token in self.removed))
        (directory / "registered").write_text(
            "".join(f"HSET push:{{shared}}:registrations {token} {(now + 60) * 1000}\n" for token in self.registered))


def invalid_token_details(redis):
    """The facts about each invalid token that has details; docs/invalid-tokens.md describes their form."""
    base = "push:{shared}:invalid-tokens"
    values = (value for part in range(4096) for value in redis("HVALS", f"{base}:details:{part:03x}"))
    return [redis("HGET", f"{base}:facts", int.from_bytes(value[8:], "big")) for value in values]


def compare(jobs, worker, apns, drain, redis):
    """Prints the accounts side by side, and returns the disagreements. In a row, None means that an account lacks the value."""
    counters, answers, sent = Counter(), Counter(apns["answers"]), jobs.sent
    # If midnight has passed, there are counters of two days.
    for day in redis("KEYS", "push:{default}:stats:*"):
        fields = iter(redis("HGETALL", day))
        counters.update({name.decode(): int(count) for name, count in zip(fields, fields)})
    # A dead letter is a line of JSON, a line feed, and the original job.
    letters = [member.split(b"\n", 1) for member in redis("ZRANGE", "push:{default}:dead", 0, -1)]
    details = invalid_token_details(redis)
    # BadDeviceToken is retried once if APNs has accepted no other token of the app yet, or refused several in a row.
    again = counters["retried:BadDeviceToken"]
    answered = answers["503 ServiceUnavailable"] + answers["429 TooManyRequests"] + apns["resets"] + again
    retried = sent["0503"] + 2 * sent["0429"] + sent["0105"] + again
    refused = answers["410 Unregistered"] + answers["400 BadDeviceToken"] - again
    added = len(jobs.removed) - len(jobs.registered)
    rows = [
        ("delivered", worker["delivered"], counters["delivered"], apns["distinct_ids"], jobs.delivered),
        ("invalid tokens", worker["invalid_token"], counters["invalid_token"], refused, jobs.invalid),
        ("from the feedback service", drain["records"], None, apns["feedback"]["served"], len(jobs.removed) + sent["0410"]),
        ("  of which added", drain["added"], sum(b'"feedback"' in facts for facts in details), None, added),
        ("  known from answers", drain["known"], None, None, sent["0410"]),
        ("  registered since", drain["registered_since"], None, None, len(jobs.registered)),
        ("in the set of invalid tokens", None, redis("SCARD", "push:{shared}:invalid-tokens"), None, jobs.invalid + added),
        ("  with details", None, len(details), None, jobs.invalid + added),
        ("dead-lettered", worker["dead"], counters["dead"], None, len(jobs.dead)),
        *((f"  {reason}", None, counters[f"dead:{reason}"], None, jobs.reasons[reason])
          for reason in ("MalformedJSON", "NotAnObject", "PayloadTooLarge")),
        ("  dead letters kept", None, len(letters), None, len(jobs.dead)),
        ("expired or dropped", worker["expired"] + worker["dropped"], counters["expired"] + counters["dropped"], None, 0),
        ("retried", worker["retried"], counters["retried"], answered, retried),
        ("  after 503 ServiceUnavailable", None, counters["retried:ServiceUnavailable"], answers["503 ServiceUnavailable"], sent["0503"]),
        ("  after 429 TooManyRequests", None, counters["retried:TooManyRequests"], answers["429 TooManyRequests"], 2 * sent["0429"]),
        ("  after an answer that was lost", None, None, apns["resets"], sent["0105"]),
        ("  to be sure of a bad token", None, again, None, None),
        ("duplicates (accepted, answer lost)", worker["possible_duplicates"], counters["possible_duplicates"], apns["duplicates"],
         sent["0105"]),
        ("requests", worker["submitted"], None, apns["requests"], jobs.delivered + jobs.invalid + retried),
        ("settled twice or not at all", worker["lost_claims"], None, None, 0),
    ]
    print(f"\n  {f'{jobs.count:,} jobs':<34}" + "".join(f"{account:>12}" for account in ("worker", "Redis", "APNs", "expected")))
    for name, *values in rows:
        if any(values) or not name.endswith("bad token"):
            print(f"  {name:<34}" + "".join(f"{'' if value is None else format(value, ','):>12}" for value in values))
    disagreements = [name.strip() for name, *values in rows if len(set(values) - {None}) > 1]
    # Each job has exactly one outcome, and each notification that APNs accepted was delivered or is a duplicate.
    ended = sum(worker[outcome] for outcome in ("delivered", "invalid_token", "dead", "expired", "dropped"))
    if ended != jobs.count:
        disagreements.append(f"{ended} of {jobs.count} jobs have ended")
    if apns["accepted"] != worker["delivered"] + apns["duplicates"]:
        disagreements.append(f"APNs accepted {apns['accepted']} notifications")
    if sorted(jobs.dead) != sorted(original for _, original in letters):
        disagreements.append("the dead letters are not the bytes that were enqueued")
    if jobs.reasons != Counter(json.loads(header)["reason"] for header, _ in letters):
        disagreements.append("the dead letters have other reasons")
    left = [key.decode() for key in redis("KEYS", "*")]
    return disagreements + [f"left in Redis: {key}" for key in left if not MAY_STAY.fullmatch(key)]


def main(command, directory, count, *arguments):
    directory, jobs = Path(directory), Jobs(int(count))
    if command == "jobs":
        return jobs.write(directory)
    worker, apns, drain = (json.loads((directory / f"{name}.json").read_text()) for name in ("worker", "simulator", "drain"))
    disagreements = compare(jobs, worker, apns, drain["apps"][0], Redis(int(arguments[0])))
    seconds = int(arguments[1]) / 1e6
    print()
    hint = "" if arguments[2] == "release" else "; with --release, the figures are those of a worker in production"
    for name, value, rest in (
            ("notifications per second", f"{jobs.count / seconds:.0f}",
             f"in {seconds:.2f} s from the start of the worker to its end, including pauses of retries{hint}"),
            ("CPU microseconds per notification", f"{worker['cpu_microseconds'] / jobs.count:.2f}", "of the whole process, including its start and end"),
            ("peak memory", f"{worker['peak_memory_kib'] / 1024:.1f}", "MiB")):
        print(f"  {name:<34}{value:>12}  {rest}")
    if disagreements:
        print("\n  The accounts do not agree:", *disagreements, sep="\n    ")
        sys.exit(1)
    print("\n  The accounts of the worker, Redis and APNs agree to the job.")


main(*sys.argv[1:])
