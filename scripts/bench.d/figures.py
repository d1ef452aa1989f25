"""The measurements. Each starts its own servers, measures once, checks that nothing was lost, and stops them."""

import json
import os
import re
import socket
import threading
import time
from statistics import median

from counters import counter_type
from programs import Failed, Program, Refused, await_true
from resp import Redis, RedisError
from servers import RedisServer, Simulator, accepts, free_port
from workload import PREFIX, Queue, payload

STREAMS = 500


def provider_token(bench):
    program = Program(
        "token", [f"{bench.bin}/Benchmarks", "token", "--key", bench.key, "--key-id", bench.key_id, "--team-id",
                  bench.team_id], bench.server_cores, bench.directory)
    program.wait(30)
    return program.said().strip()


def limit(bench, setting):
    """h2load: the bare request, with the worker's headers and body."""
    count = bench.notifications[setting]
    h2load = bare_requests(bench, setting, count)
    return {"cpu_us": h2load.used_us() / count, "rate": count / (h2load.ended - h2load.began)}


def bare_requests(bench, setting, count, counter=None):
    """Runs h2load to the end of its requests, and returns it."""
    peer = Simulator(bench, setting)
    body, paths = os.path.join(bench.directory, "body.json"), os.path.join(bench.directory, "paths")
    with open(body, "w", encoding="utf-8") as file:
        file.write(payload())
    with open(paths, "w", encoding="utf-8") as file:
        for number in range(1000):
            file.write(f"https://localhost:{peer.port}/3/device/{number * 0x9E3779B97F4A7C15 % 2**256:064x}\n")
    h2load = Program(
        "h2load", [
            "h2load", "-n", count, "-c", 1, "-m", STREAMS, "-t", 1, "-d", body, "-i", paths,
            "-H", f"authorization: bearer {provider_token(bench)}", "-H", "apns-topic: com.example.app",
            "-H", "apns-push-type: alert", "-H", "apns-priority: 10",
            "-H", "apns-id: 7c2f91d0-4b1e-4a57-9d3e-0f6c2b8a1e44",
        ], bench.client_cores, bench.directory, counter=counter)
    h2load.wait(600)
    peer.stop()
    succeeded = re.search(r"(\d+) succeeded", h2load.said())
    if not succeeded or int(succeeded[1]) != count or f"{count} 2xx" not in h2load.said():
        raise Failed(f"h2load did not get {count} times 200:\n{h2load.said()}")
    return h2load


class Worker:
    """apns-worker run, with one lane and one connection."""

    def __init__(self, bench, redis, peer, settings=None, counter=None):
        Worker.account_number = getattr(Worker, "account_number", 0) + 1
        self.account_file = os.path.join(bench.directory, f"worker-{Worker.account_number}.json")
        self.program = Program(
            "apns-worker", [
                f"{bench.measured}/apns-worker", "run", "--lanes", 1, "--max-connections", 1, "--max-streams", STREAMS,
                "--account", self.account_file,
            ], bench.client_cores, bench.directory, {
                "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_TOPIC": "com.example.app",
                "APNS_WORKER_ENDPOINT": f"localhost:{peer.port}", "APNS_WORKER_CA": f"{bench.certificates}/ca.pem",
                "APNS_WORKER_KEY": bench.key, "APNS_WORKER_KEY_ID": bench.key_id, "APNS_WORKER_TEAM_ID": bench.team_id,
                **(settings or {}),
            }, counter)

    def stop(self):
        """Stops the worker and returns its account."""
        self.program.stop()
        with open(self.account_file, encoding="utf-8") as file:
            return json.load(file)


def worker(bench, setting, tokens=1):
    """Measures a worker with a backlog of jobs, from Redis to settlement."""
    jobs = bench.notifications[setting] // tokens
    redis = RedisServer(bench)
    queue = Queue(redis.client, tokens)
    queue.push(jobs)
    peer = Simulator(bench, setting)
    redis_before, reads_before = redis.client.cpu_us(), redis.client.others_reads()
    running = Worker(bench, redis, peer)
    began = drain(queue, running, jobs)
    seconds = time.monotonic() - began
    redis_us = redis.client.cpu_us() - redis_before
    trips_per_256_jobs = 256 * (redis.client.others_reads() - reads_before) / jobs
    peak = running.program.memory_kib("VmHWM")
    account, seen = running.stop(), peer.stop()
    redis.stop()
    count = jobs * tokens
    check(account, seen, count)
    result = {
        "cpu_us": running.program.used_us() / count, "rate": count / seconds, "peak_kib": peak, "redis_cpu_us": redis_us / count,
    }
    if tokens == 1:
        result["redis_trips_per_256_jobs"] = trips_per_256_jobs
    return result


def fanout(bench, setting):
    return worker(bench, setting, tokens=1000)


def drain(queue, running, jobs):
    """Waits until this number of jobs is done. Returns the time when the first job was claimed."""
    began = None
    deadline = time.monotonic() + 900
    while True:
        fresh, rest = queue.depth()
        done = queue.pushed - fresh - rest
        began = began or (time.monotonic() if done or rest else None)
        if done >= jobs:
            return began or time.monotonic()
        must_work(running)
        if time.monotonic() > deadline:
            raise Failed(f"{fresh} jobs are waiting and {rest} in flight after 15 minutes")
        time.sleep(pause(done, jobs, began))


def must_work(running):
    if running.program.has_ended():
        raise running.program.failed("ended by itself")


def pause(done, jobs, began):
    """Returns the pause before the next read. Each read costs Redis 20 µs, and more if large jobs are claimed."""
    if not done:
        # Before the beginning, which is timed, pauses are short. After it, the first large job ends late, so pauses are longer.
        return 0.005 if began is None else 0.05
    expected = (time.monotonic() - began) * (jobs - done) / done
    return max(0.003, min(0.1, expected / 3))


def check(account, seen, expected):
    """Checks that all notifications were delivered, and that the simulator has the same number."""
    for field in ("dead", "invalid_token", "expired", "dropped", "retried", "deferred", "possible_duplicates", "lost_claims"):
        if field not in account:
            raise Refused(f"the worker's account lacks {field}")
        if account[field]:
            raise Failed(f"the worker's account says {field}: {account[field]}, where nothing went wrong")
    if account["delivered"] != expected:
        raise Failed(f"{account['delivered']} notifications were delivered, not {expected}")
    if seen["accepted"] != expected or seen["duplicates"] or seen["protocol_errors"]:
        raise Failed(f"the worker says it delivered {expected}; the simulator's account says {json.dumps(seen)}")


INVALID = """
for first = 1, ARGV[1], 1000 do
    local tokens = {}
    for number = first, first + 999 do tokens[#tokens + 1] = string.format('ff%062x', number) end
    redis.call('SADD', KEYS[1], unpack(tokens))
end
"""


def lookup(bench, setting):
    """Measures a worker that has read a million invalid tokens from Redis. No job has one of these tokens."""
    jobs = bench.notifications[setting]
    redis = RedisServer(bench)
    redis.client("EVAL", INVALID, 1, "push:{shared}:invalid-tokens", 1_000_000)
    peer = Simulator(bench, setting)
    running = Worker(bench, redis, peer)
    queue = Queue(redis.client)

    def has_read():
        # The worker reads the set while it sends jobs. When it reads the changes (XRANGE), it has read the whole set.
        queue.push(10)
        return b"cmdstat_xrange" in redis.client("INFO", "commandstats")

    try:
        await_true(has_read, "the worker has read the invalid tokens", pause=0.1)
    except Failed as failure:
        raise Refused(str(failure)) from None
    await_true(lambda: sum(queue.depth()) == 0, "the worker has warmed up")
    warm = queue.made
    queue.prepare(jobs)
    worker_before, redis_before = running.program.cpu_us(), redis.client.cpu_us()
    queue.give_all()
    began = drain(queue, running, warm + jobs)
    seconds = time.monotonic() - began
    worker_us, redis_us = running.program.cpu_us() - worker_before, redis.client.cpu_us() - redis_before
    peak = running.program.memory_kib("VmHWM")
    check(running.stop(), peer.stop(), warm + jobs)
    redis.stop()
    return {"cpu_us": worker_us / jobs, "rate": jobs / seconds, "peak_kib": peak, "redis_cpu_us": redis_us / jobs}


# Backlogs of large jobs: {name: ((tokens per job, number of consecutive jobs), …), repeated}. A token has 67 bytes.
LARGE = {
    "14 kB": ((200, 1),), "70 kB": ((1000, 1),), "1 MB": ((15_000, 1),), "6.7 MB": ((100_000, 1),),
    "1 MB, half small": ((1, 1), (15_000, 1)), "6.7 MB, 1 in 10": ((1, 9), (100_000, 1)),
    # A claim that begins with small jobs ends before a large job.
    "6.7 MB, 7 in 8": ((1, 1), (100_000, 7)),
}


def claim_limit_ms(size):
    """Returns the maximum time for which a claim of `size` bytes may block Redis."""
    return 5 + size / 100_000


def large(bench, mix):
    """Measures how long claims block Redis, and settlements of a worker that stores all results.

    Times are wall-clock times from Redis' slow log. On a busy machine they include other programs on the same core, so the
    limit applies to the CPU time that Redis uses from the command to the last byte of the reply.
    """
    redis = RedisServer(bench)
    push_mix(redis, mix, bench.large_backlog)
    watch_scripts(redis)
    pings = Pings(redis.port)
    program = Program(
        "claims", [f"{bench.measured}/Benchmarks", "claims", "--redis", redis.url, "--redis-pid", redis.program.pid],
        bench.client_cores, bench.directory)
    program.wait(300)
    worst_ping_ms = pings.stop()
    redis.client("CONFIG", "SET", "slowlog-log-slower-than", -1)
    times_ms = script_times_ms(redis, "jobs", "retry")
    left = redis.client("LLEN", PREFIX + "jobs") + redis.client("HLEN", PREFIX + "claimed:bench")
    redis.stop()
    claims = json.loads(program.said())
    if left or len(times_ms) != len(claims):
        raise Failed(f"{left} jobs are left; {len(claims)} claims, of which Redis logged {len(times_ms)}")
    # The last claim is removed, because it returns no job.
    times_ms.pop()
    claims.pop()
    return {
        "claims": len(claims), "bytes": median(size for size, _ in claims), "median_ms": median(times_ms),
        "p99_ms": percentile_99(times_ms), "worst_ms": max(times_ms), "worst_cpu_ms": max(us for _, us in claims) / 1000,
        "of_limit": max(us / 1000 / claim_limit_ms(size) for size, us in claims), "ping_ms": worst_ping_ms,
        **settlements(bench, mix),
    }


def settlements(bench, mix):
    """Delivers the jobs with a worker that stores all results."""
    redis = RedisServer(bench)
    jobs, notifications = push_mix(redis, mix, bench.large_backlog // 4)
    queue = Queue(redis.client)
    queue.pushed = jobs
    watch_scripts(redis)
    peer = Simulator(bench, "at once")
    running = Worker(bench, redis, peer, settings={"APNS_WORKER_RESULTS": "all"})
    drain(queue, running, jobs)
    redis.client("CONFIG", "SET", "slowlog-log-slower-than", -1)
    times_ms = script_times_ms(redis, "claimed:", "retry")
    account, seen = running.stop(), peer.stop()
    redis.stop()
    check(account, seen, notifications)
    return {
        "settlements": len(times_ms), "settlement_median_ms": median(times_ms),
        "settlement_p99_ms": percentile_99(times_ms), "settlement_worst_ms": max(times_ms),
    }


def push_mix(redis, mix, size):
    """Pushes large jobs of this size in bytes. Returns the numbers of jobs and notifications."""
    backlog = number = notifications = 0
    while backlog < size:
        for tokens, jobs in mix:
            queue = Queue(redis.client, tokens)
            queue.made = number
            queue.push(jobs)
            number += jobs
            notifications += jobs * tokens
            backlog += jobs * (350 + 67 * tokens)
    # Without this, the measured scripts would collect the garbage of the scripts that made the jobs.
    redis.client("SCRIPT", "FLUSH", "SYNC")
    return number, notifications


def watch_scripts(redis):
    redis.client("CONFIG", "SET", "slowlog-max-len", 1_000_000)
    redis.client("CONFIG", "SET", "slowlog-log-slower-than", 0)


def script_times_ms(redis, *keys):
    """Returns the times of the calls of a script, in order. `keys` are the beginnings of its first keys, which identify it."""
    keys = [(PREFIX + key).encode() for key in keys]
    return [entry[2] / 1000 for entry in reversed(redis.client("SLOWLOG", "GET", -1))
            if entry[3][0] in (b"EVAL", b"EVALSHA") and len(entry[3]) > 4
            and all(found.startswith(key) for found, key in zip(entry[3][3:], keys))]


def percentile_99(values):
    return sorted(values)[(99 * len(values) - 1) // 100]


class Pings:
    """A client that sends Redis a PING every millisecond."""

    def __init__(self, port):
        self.client = Redis(port)
        self.has_ended = threading.Event()
        self.worst_ms = 0
        self.error = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.has_ended.wait(0.001):
                sent = time.monotonic()
                self.client("PING")
                self.worst_ms = max(self.worst_ms, 1000 * (time.monotonic() - sent))
        except (OSError, RedisError) as error:
            self.error = error

    def stop(self):
        """Stops the client, and returns the longest time that a PING waited."""
        self.has_ended.set()
        self.thread.join()
        self.client.close()
        if self.error:
            raise Failed(f"PING: {self.error}")
        return self.worst_ms


# The open pages of the dashboard.
OPEN_PAGES = ("/", "/", "/queues", "/queues/default", "/campaigns", "/apps", "/workers", "/redis", "/jobs", "/dead")
RETRY_BYTES = 68_000


def looking(bench, _):
    """Measures Redis' CPU for ten open pages of the dashboard and a `status` each second, with 50,000 retries of 68 kB and two
    million waiting jobs: 3.5 GB."""
    redis = RedisServer(bench)
    share = 100 if bench.is_quick else 1
    Queue(redis.client).push(2_000_000 // share)
    redis.client("EVAL", RETRIES, 1, PREFIX + "failed", 50_000 // share, RETRY_BYTES)
    port = free_port()
    web = Program("web", [f"{bench.measured}/apns-worker", "web", "--port", port, "--redis", redis.url], bench.client_cores,
                  bench.directory)
    await_true(lambda: accepts(port), "the dashboard is open")
    pages = [Page(port, path) for path in OPEN_PAGES]
    await_true(lambda: all(page.bytes for page in pages), "all pages are open")
    before, written, began = redis.client.cpu_us(), redis.client.written(), time.monotonic()
    while (seconds := time.monotonic() - began) < bench.trickle_seconds:
        status = Program("status", [f"{bench.measured}/apns-worker", "status", "--redis", redis.url], bench.client_cores,
                         bench.directory)
        status.wait(30)
        time.sleep(max(0, began + seconds + 1 - time.monotonic()))
    used, written = redis.client.cpu_us() - before, redis.client.written() - written
    for page in pages:
        page.close()
    web.stop()
    redis.stop()
    return {"redis_percent": used / seconds / 10_000, "redis_kb_per_second": written / seconds / 1000}


RETRIES = """
local time = redis.call('TIME')
local body = string.rep('a', ARGV[2])
for number = 1, ARGV[1] do
    redis.call('ZADD', KEYS[1], (time[1] + 3600) * 1000 + number, '{"apns_worker":1,"attempt":2,"error":{"reason":"Shutdown",' ..
        '"at":' .. time[1] .. '000},"job":{"campaign":"news","alert":"' .. body .. '","token":"' ..
        string.format('%064x', number) .. '"}}')
end
"""


class Page:
    """An open page of the dashboard, which receives live updates."""

    def __init__(self, port, path):
        self.bytes = 0
        self.connection = socket.create_connection(("127.0.0.1", port))
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n"
        self.connection.sendall(request.encode())
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while found := self.connection.recv(65536):
                self.bytes += len(found)
        except OSError:
            pass

    def close(self):
        self.connection.close()


def instructions(bench, name):
    """Returns the instructions in user space per notification, with answers at once, from the difference of two runs."""
    kind = counter_type()
    lengths = kind.quick_lengths if bench.is_quick else kind.lengths
    bench.counter_name = kind.name
    counts = [count_instructions(bench, name, count, kind(bench)) for count in lengths]
    return {"instructions": (counts[1] - counts[0]) / (lengths[1] - lengths[0])}


# {figure that counts a worker's instructions: tokens per job}.
COUNTED = {"worker": 1, "fanout": 1000}


def count_instructions(bench, name, notifications, counter):
    """Returns the instructions of a program that sends this number of notifications."""
    if name == "limit":
        bare_requests(bench, "at once", notifications, counter)
        return counter.count()
    tokens = COUNTED[name]
    jobs = notifications // tokens
    redis = RedisServer(bench)
    queue = Queue(redis.client, tokens)
    queue.push(jobs)
    peer = Simulator(bench, "at once")
    running = Worker(bench, redis, peer, counter=counter)
    drain(queue, running, jobs)
    check(running.stop(), peer.stop(), jobs * tokens)
    redis.stop()
    return counter.count()


# Jobs per second of all queues together, and the numbers of queues.
TRICKLE_RATE = 48
TRICKLE = {"one queue": 1, "sixteen queues": 16}


def trickle(bench, number):
    """Measures a worker with a few jobs per second on each of several queues. Redis' CPU includes the producer's RPUSH."""
    redis = RedisServer(bench)
    peer = Simulator(bench, "at once")
    names = [f"trickle-{index}" for index in range(number)]
    queues = [Queue(redis.client, name=name) for name in names]
    running = Worker(bench, redis, peer, settings={"APNS_WORKER_QUEUE": ",".join(names)})

    def push(numbers):
        for index in numbers:
            queue = queues[index % len(queues)]
            redis.client("RPUSH", queue.prefix + "jobs", queue.job(index))

    def delivered():
        # Uses no script, because its commands would be counted as the worker's.
        must_work(running)
        keys = redis.client("KEYS", "push:*:stats:*")
        return sum(int(redis.client("HGET", key, "delivered") or 0) for key in keys)

    # The number of jobs is the same for one queue and for several.
    warm_up = 10 * max(TRICKLE.values())
    push(range(warm_up))
    await_true(lambda: delivered() == warm_up, "the worker has warmed up")
    jobs = TRICKLE_RATE * bench.trickle_seconds
    # The worker's longest pause is a second. After it, the worker does nothing more for the last job.
    time.sleep(1)
    calls, reads = redis.client.others_calls(), redis.client.others_reads()
    redis_us, worker_us = redis.program.cpu_us(), running.program.cpu_us()
    due, step = time.monotonic(), 1 / TRICKLE_RATE
    for index in range(jobs):
        time.sleep(max(0.0, due - time.monotonic()))
        push([warm_up + index])
        # A late job must not follow another one at once, because a worker would claim both together.
        due = max(due + step, time.monotonic() + step / 2)
    time.sleep(1)
    await_true(lambda: delivered() == warm_up + jobs, "all jobs are settled", pause=0.2)
    redis_us, worker_us = redis.program.cpu_us() - redis_us, running.program.cpu_us() - worker_us
    calls, reads = redis.client.others_calls() - calls, redis.client.others_reads() - reads
    check(running.stop(), peer.stop(), warm_up + jobs)
    redis.stop()
    return {
        "cpu_us": worker_us / jobs, "redis_cpu_us": redis_us / jobs, "redis_commands": calls / jobs, "redis_reads": reads / jobs,
    }
