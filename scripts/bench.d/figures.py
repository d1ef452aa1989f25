"""The measurements. Each starts its own servers, measures once, checks that nothing was lost, and stops them."""

import json
import os
import re
import socket
import threading
import time
from statistics import median

from consumers import Consumer
from counters import counter_type
from programs import Failed, Program, Refused, Unavailable, await_true
from resp import Redis, RedisError
from shares import Perf
from servers import SERVERS, Gateway, RedisServer, Simulator
from workload import PREFIX, Queue, payload

STREAMS = 500
# The commands that count as round trips to Redis. In normal operation the worker sends no others, scripts call neither, and this
# program uses `eval`.


def server(bench, setting, *options):
    return SERVERS[bench.server](bench, setting, *options)


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
    """Returns h2load, after its requests."""
    peer = server(bench, setting)
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
        ], bench.client_cores(1), bench.directory, counter=counter)
    h2load.wait(600)
    peer.stop()
    succeeded = re.search(r"(\d+) succeeded", h2load.said())
    if not succeeded or int(succeeded[1]) != count or f"{count} 2xx" not in h2load.said():
        raise Failed(f"h2load did not get {count} times 200:\n{h2load.said()}")
    return h2load


class Worker:
    """apns-worker run."""

    def __init__(self, bench, redis, peer, lanes=1, cores=1, settings=None, streams=None, connections=1, counter=None):
        certificates = bench.certificates
        credential = {
            "APNS_WORKER_KEY": bench.key, "APNS_WORKER_KEY_ID": bench.key_id, "APNS_WORKER_TEAM_ID": bench.team_id,
        }
        if isinstance(peer, Gateway):
            credential = {
                "APNS_WORKER_TRANSPORT": "gateway", "APNS_WORKER_CERTIFICATE": f"{certificates}/client.pem",
                "APNS_WORKER_CERTIFICATE_KEY": f"{certificates}/client-key.pem",
                # The wait for the confirmation of the last notification does not affect the rate.
                "APNS_WORKER_GATEWAY_CONFIRM_AFTER": "200",
            }
            # One connection is filled while the notifications on another are confirmed.
            connections = 2
        Worker.account_number = getattr(Worker, "account_number", 0) + 1
        self.account_file = os.path.join(bench.directory, f"worker-{Worker.account_number}.json")
        self.program = Program(
            "apns-worker", [
                f"{bench.measured}/apns-worker", "run", "--lanes", lanes, "--max-connections", connections,
                "--max-streams", streams or STREAMS, "--account", self.account_file,
            ], bench.client_cores(cores), bench.directory, {
                "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_TOPIC": "com.example.app",
                "APNS_WORKER_ENDPOINT": f"localhost:{peer.port}", "APNS_WORKER_CA": f"{certificates}/ca.pem",
                **credential, **(settings or {}),
            }, counter)

    def stop(self):
        """Stops it and returns its account."""
        self.program.stop()
        with open(self.account_file, encoding="utf-8") as file:
            return json.load(file)


INVALID = """
for first = 1, ARGV[1], 1000 do
    local tokens = {}
    for number = first, first + 999 do tokens[#tokens + 1] = string.format('ff%062x', number) end
    redis.call('SADD', KEYS[1], unpack(tokens))
end
"""


def work(bench, setting, jobs=None, tokens=1, lanes=1, processes=1, peer=None, streams=None, connections=1):
    """From a backlog in Redis to settlement.

    connections: of each lane.
    """
    jobs = jobs or bench.notifications[setting] // tokens
    redis = RedisServer(bench)
    queue = Queue(redis.client, tokens)
    queue.push(jobs)
    job_bytes = redis.client("MEMORY", "USAGE", PREFIX + "jobs", "SAMPLES", 0) / jobs
    peer = (peer or server)(bench, setting)
    redis_before, reads_before = redis.client.cpu_us(), redis.client.others_reads()
    workers = [
        Worker(bench, redis, peer, lanes, lanes * processes, streams=streams, connections=connections)
        for _ in range(processes)]
    began = drain(queue, workers, jobs)
    seconds = time.monotonic() - began
    redis_us = redis.client.cpu_us() - redis_before
    trips_per_256_jobs = 256 * (redis.client.others_reads() - reads_before) / jobs
    peaks = [worker.program.memory_kib("VmHWM") for worker in workers]
    accounts = [worker.stop() for worker in workers]
    seen = peer.stop()
    redis.stop()
    delivered = sum(account["delivered"] for account in accounts)
    check(accounts, seen, delivered, jobs * tokens)
    result = {
        "cpu_us": sum(worker.program.used_us() for worker in workers) / delivered,
        "rate": delivered / seconds, "peak_kib": max(peaks), "redis_cpu_us": redis_us / delivered,
        "job_bytes": job_bytes,
    }
    if tokens == 1:
        result["redis_trips_per_256_jobs"] = trips_per_256_jobs
    return result


def drain(queue, workers, jobs):
    """Waits until this number of jobs is done. Returns the time at which it began."""
    began = None
    deadline = time.monotonic() + 900
    while True:
        fresh, rest = queue.depth()
        done = queue.pushed - fresh - rest
        began = began or (time.monotonic() if done or rest else None)
        if done >= jobs:
            return began or time.monotonic()
        must_work(workers)
        if time.monotonic() > deadline:
            raise Failed(f"{fresh} jobs are waiting and {rest} in flight after 15 minutes")
        time.sleep(pause(done, jobs, began))


def must_work(workers):
    for worker in workers:
        if worker.program.has_ended():
            raise worker.program.failed("ended by itself")


def pause(done, jobs, began):
    """Returns the pause before the next read, because each costs Redis 20 µs, and more of claimed jobs that are large."""
    if not done:
        # The beginning is timed; of large jobs, the first ends late.
        return 0.005 if began is None else 0.05
    expected = (time.monotonic() - began) * (jobs - done) / done
    return max(0.003, min(0.1, expected / 3))


def backlogs(bench, setting):
    """One worker at several backlogs in turn, for a second each, repeatedly.

    A shared machine's speed drifts from minute to minute by more than the differences of interest; within seconds it does not.
    """
    rounds, jobs = bench.slices[setting]
    sizes = bench.backlogs
    redis = RedisServer(bench)
    queue = Queue(redis.client)
    queue.prepare(sizes[-1] + rounds * (len(sizes) * (jobs + WARM_UP) + sum(sizes[:-1])))
    peer = server(bench, setting)
    worker = Worker(bench, redis, peer)
    sums = {size: [0, 0, 0, 0] for size in sizes}
    for number in range(rounds):
        for offset in range(len(sizes)):
            size = sizes[(number + offset) % len(sizes)]
            slice_of = at_backlog(queue, worker, None if size == sizes[-1] else size, jobs)
            sums[size] = [total + part for total, part in zip(sums[size], slice_of)]
    peak = worker.program.memory_kib("VmHWM")
    account = worker.stop()
    check([account], peer.stop(), account["delivered"], None)
    redis.stop()
    result = {}
    for size, (cpu_us, delivered, seconds, reads) in sums.items():
        result[f"{size}.cpu_us"] = cpu_us / delivered
        result[f"{size}.rate"] = delivered / seconds
        result[f"{size}.peak_kib"] = peak
        result[f"{size}.redis_trips_per_256_jobs"] = 256 * reads / delivered
    costs = [result[f"{size}.cpu_us"] for size in sizes]
    result["flatness"] = max(costs) / min(costs)
    return result


# Notifications after a change of the backlog that are not counted.
WARM_UP = 3000


def at_backlog(queue, worker, held, jobs):
    """Waits until this number of jobs is done. Returns CPU time in µs, notifications, seconds, and reads by Redis.

    held: the backlog; None for all that has been prepared.
    """
    queue.take_back()
    if held is None:
        queue.give_all()
    start = before = None
    deadline = time.monotonic() + 300
    while True:
        # Read equally often at any backlog; the smallest one must not become empty.
        for _ in range(5):
            if held is not None:
                queue.top_up(held)
            time.sleep(0.002)
        now = (worker.program.cpu_us(), queue.delivered(), time.monotonic(), queue.redis.others_reads())
        start = start or now
        if before is None and now[1] - start[1] >= WARM_UP:
            before = now
        elif before and now[1] - before[1] >= jobs:
            return [after - earlier for after, earlier in zip(now, before)]
        must_work([worker])
        if time.monotonic() > deadline:
            raise Failed(f"{now[1] - start[1]} jobs were done within 5 minutes")


def check(accounts, seen, delivered, expected):
    """Checks that all notifications were delivered, and that the simulator has the same number."""
    for field in ("dead", "invalid_token", "expired", "dropped", "retried", "deferred", "possible_duplicates", "lost_claims"):
        if not all(field in account for account in accounts):
            raise Refused(f"the worker's account lacks {field}")
        count = sum(account[field] for account in accounts)
        if count:
            raise Failed(f"the worker's account says {field}: {count}, where nothing went wrong")
    if expected is not None and delivered != expected:
        raise Failed(f"{delivered} notifications were delivered, not {expected}")
    if seen is not None and (seen["accepted"] != delivered or seen["duplicates"] or seen["protocol_errors"]):
        raise Failed(f"the worker says it delivered {delivered}; the simulator's account says {json.dumps(seen)}")


def worker(bench, setting):
    return work(bench, setting)


def go(bench, setting):
    return consume(bench, setting, "go")


def python(bench, setting):
    if bench.server == "nginx":
        raise Unavailable("aioapns needs the apns-id in each answer, which --server nginx does not send")
    return consume(bench, setting, "python")


def consume(bench, setting, name):
    """A consumer from a backlog in Redis to the last answer, without its start."""
    jobs = bench.consumer_notifications[name]
    redis = RedisServer(bench)
    queue = Queue(redis.client)
    queue.prepare(jobs)
    peer = server(bench, setting)
    consumer = Consumer(bench, name, redis, peer)
    started_us = consumer.program.cpu_us()
    queue.give_all()
    # An empty list leaves only the answers to what is in flight, which the consumer awaits.
    await_true(
        lambda: redis.client("LLEN", PREFIX + "jobs") == 0 or consumer.program.has_ended(), f"the {name} consumer ends",
        seconds=900, pause=0.05)
    if consumer.program.has_ended():
        raise consumer.program.failed("ended by itself")
    peak = consumer.program.memory_kib("VmHWM")
    account = consumer.stop()
    seen = peer.stop()
    redis.stop()
    if account["answers"] != {"200": jobs}:
        raise consumer.program.failed(f"of {jobs} jobs, the answers were {json.dumps(account['answers'])}")
    if seen is not None and (seen["accepted"] != jobs or seen["duplicates"] or seen["protocol_errors"]):
        raise Failed(f"the {name} consumer sent {jobs} notifications; the simulator's account is {json.dumps(seen)}")
    return {
        "cpu_us": (consumer.program.used_us() - started_us) / jobs, "rate": jobs / account["seconds"], "peak_kib": peak,
    }


def lookup(bench, setting, tokens=1):
    """A backlog with a million invalid tokens in Redis, none of them a job's, after the worker has read these."""
    jobs = bench.notifications[setting] // tokens
    redis = RedisServer(bench)
    redis.client("EVAL", INVALID, 1, "push:{shared}:invalid-tokens", 1_000_000)
    peer = server(bench, setting)
    running, warm = warm_worker(bench, redis, peer)
    # The worker reads the changes once it has read the set.
    try:
        await_true(
            lambda: b"cmdstat_xrange" in redis.client("INFO", "commandstats"), "the worker has read the invalid tokens")
    except Failed as failure:
        raise Refused(str(failure)) from None
    queue = Queue(redis.client, tokens)
    # Job identifiers are unique.
    queue.made = warm.made
    queue.prepare(jobs)
    worker_before, redis_before = running.program.cpu_us(), redis.client.cpu_us()
    queue.give_all()
    queue.pushed = jobs
    began = drain(queue, [running], jobs)
    seconds = time.monotonic() - began
    worker_us, redis_us = running.program.cpu_us() - worker_before, redis.client.cpu_us() - redis_before
    peak = running.program.memory_kib("VmHWM")
    account = running.stop()
    check([account], peer.stop(), account["delivered"], warm.made + jobs * tokens)
    redis.stop()
    count = jobs * tokens
    return {"cpu_us": worker_us / count, "rate": count / seconds, "peak_kib": peak, "redis_cpu_us": redis_us / count}


def lookup_fanout(bench, setting):
    return lookup(bench, setting, tokens=1000)


def fanout(bench, setting):
    return work(bench, setting, tokens=1000)


def gateway(bench, setting):
    """The same through the binary gateway, until the last notification is confirmed after 200 ms."""
    return work(bench, setting, peer=lambda bench, _: Gateway(bench))


def profile(bench, tokens):
    """The shares of libraries and modules in a worker's CPU time, from a backlog in Redis to settlement."""
    jobs = bench.notifications["at once"] // tokens
    redis = RedisServer(bench)
    peer = server(bench, "at once")
    running, warm = warm_worker(bench, redis, peer)
    queue = Queue(redis.client, tokens)
    # Job identifiers are unique.
    queue.made = warm.made
    queue.prepare(jobs)
    perf = Perf(bench, running.program.pid)
    queue.give_all()
    queue.pushed = jobs
    drain(queue, [running], jobs)
    perf.pause()
    account = running.stop()
    check([account], peer.stop(), account["delivered"], warm.made + jobs * tokens)
    redis.stop()
    return perf.shares()


def warm_worker(bench, redis, peer):
    """A worker that has connected and sent notifications."""
    queue = Queue(redis.client, is_timed=False)
    running = Worker(bench, redis, peer)
    queue.push(100)
    await_true(lambda: sum(queue.depth()) == 0, "the worker has warmed up")
    return running, queue


def latency(bench, setting):
    """From a producer's RPUSH to the simulator, at 1,000 jobs per second."""
    redis = RedisServer(bench)
    peer = Simulator(bench, setting, "--measure-latency", "sent_us")
    running, queue = warm_worker(bench, redis, peer)
    pace = Program(
        "pace", [f"{bench.bin}/Benchmarks", "pace", "--job", bench.job, "--redis", redis.url, "--rate", 1000,
                 "--seconds", bench.latency_seconds], bench.server_cores, bench.directory)
    pace.wait(bench.latency_seconds + 30)
    await_true(lambda: sum(queue.depth()) == 0, "all paced jobs are settled")
    account = running.stop()
    seen = peer.stop()
    redis.stop()
    check([account], seen, account["delivered"], 1000 * bench.latency_seconds + 100)
    if seen["latency"]["count"] != 1000 * bench.latency_seconds:
        raise Failed(f"the simulator measured {seen['latency']['count']} notifications")
    names = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p999", "max_us": "maximum"}
    return {name: seen["latency"][f"{field}_microseconds"] for name, field in names.items()}


# Backlogs of large jobs: the name, and (tokens per job, consecutive jobs) in turn. A token has 67 bytes.
LARGE = {
    "14 kB": ((200, 1),), "70 kB": ((1000, 1),), "1 MB": ((15_000, 1),), "6.7 MB": ((100_000, 1),),
    "1 MB, half small": ((1, 1), (15_000, 1)), "6.7 MB, 1 in 10": ((1, 9), (100_000, 1)),
    # A claim of small jobs ends before a large one.
    "6.7 MB, 7 in 8": ((1, 1), (100_000, 7)),
}


def claim_limit_ms(size):
    """Returns the limit of the time for which a claim blocks Redis, by the bytes that it returns."""
    return 5 + size / 100_000


def large(bench, mix):
    """The time for which each claim, and each settlement by a worker that stores all results, blocks Redis.

    Times are wall-clock times from Redis' slow log. On a busy machine they include other programs on the same core, so the
    limit applies to the CPU time that Redis uses from the command to the last byte of the reply.
    """
    redis = RedisServer(bench)
    push_mix(redis, mix, bench.large_backlog)
    watch_scripts(redis)
    pings = Pings(redis.port)
    program = Program("claims", [f"{bench.measured}/Benchmarks", "claims", "--redis", redis.url, "--redis-pid", redis.program.pid],
                      bench.client_cores(1), bench.directory)
    program.wait(300)
    worst_ping_ms = pings.stop()
    redis.client("CONFIG", "SET", "slowlog-log-slower-than", -1)
    times_ms = script_times_ms(redis, "jobs", "retry")
    left = redis.client("LLEN", PREFIX + "jobs") + redis.client("HLEN", PREFIX + "claimed:bench")
    redis.stop()
    claims = json.loads(program.said())
    if left or len(times_ms) != len(claims):
        raise Failed(f"{left} jobs are left; {len(claims)} claims, of which Redis logged {len(times_ms)}")
    # The last claim returns no job.
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
    peer = server(bench, "at once")
    worker = Worker(bench, redis, peer, settings={"APNS_WORKER_RESULTS": "all"})
    drain(queue, [worker], jobs)
    redis.client("CONFIG", "SET", "slowlog-log-slower-than", -1)
    times_ms = script_times_ms(redis, "claimed:", "retry")
    account, seen = worker.stop(), peer.stop()
    redis.stop()
    check([account], seen, account["delivered"], notifications)
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
    # Otherwise the next scripts would pay for the garbage of those that made the jobs.
    redis.client("SCRIPT", "FLUSH", "SYNC")
    return number, notifications


def watch_scripts(redis):
    redis.client("CONFIG", "SET", "slowlog-max-len", 1_000_000)
    redis.client("CONFIG", "SET", "slowlog-log-slower-than", 0)


def script_times_ms(redis, *keys):
    """Returns the times of a script, in order. These are the beginnings of its first keys, which no other script has."""
    keys = [(PREFIX + key).encode() for key in keys]
    return [entry[2] / 1000 for entry in reversed(redis.client("SLOWLOG", "GET", -1))
            if entry[3][0] in (b"EVAL", b"EVALSHA") and len(entry[3]) > 4
            and all(found.startswith(key) for found, key in zip(entry[3][3:], keys))]


def percentile_99(values):
    return sorted(values)[(99 * len(values) - 1) // 100]


class Pings:
    """Another client, which sends a PING every millisecond."""

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
        """Stops it; returns the longest time that a PING waited."""
        self.has_ended.set()
        self.thread.join()
        self.client.close()
        if self.error:
            raise Failed(f"PING: {self.error}")
        return self.worst_ms


def idle(bench, _):
    """A worker without jobs."""
    redis = RedisServer(bench)
    peer = server(bench, "at once")
    running, _ = warm_worker(bench, redis, peer)
    # Activity after the last job, such as the end of a blocking command, has ended after the worker's longest pause.
    time.sleep(1)
    redis.client.send("MONITOR")
    redis.client.reply()
    start, began = running.program.cpu_us(), time.monotonic()
    commands = monitored(redis.client, bench.idle_seconds)
    seconds = time.monotonic() - began
    used = running.program.cpu_us() - start
    memory = running.program.memory_kib("VmRSS")
    running.stop()
    peer.stop()
    redis.stop()
    return {
        "cpu_percent": used / seconds / 1e4, "memory_kib": memory, "redis_commands_per_second": commands / seconds,
        "start_cpu_ms": start / 1000,
    }


def monitored(client, seconds):
    """Returns the number of commands that clients send in a time. Calls by scripts are marked `lua` and do not count."""
    count, rest, end = 0, b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        client.socket.settimeout(left)
        try:
            rest += client.socket.recv(65536)
        except (socket.timeout, BlockingIOError):
            break
        *lines, rest = rest.split(b"\r\n")
        count += sum(1 for line in lines if b" lua] " not in line)
    return count


def instructions(bench, name):
    """The instructions in user space per notification, with answers at once: the difference of a long and a short run."""
    kind = counter_type()
    lengths = kind.quick_lengths if bench.is_quick else kind.lengths
    bench.counter_name = kind.name
    counts = [count_instructions(bench, name, count, kind(bench)) for count in lengths]
    return {"instructions": (counts[1] - counts[0]) / (lengths[1] - lengths[0])}


# Tokens per job of the figures that count a worker's instructions.
COUNTED = {"worker": 1, "fanout": 1000}


def count_instructions(bench, name, notifications, counter):
    """Returns the instructions of a program with so many notifications."""
    if name == "limit":
        bare_requests(bench, "at once", notifications, counter)
        return counter.count()
    tokens = COUNTED[name]
    jobs = notifications // tokens
    redis = RedisServer(bench)
    queue = Queue(redis.client, tokens)
    queue.push(jobs)
    peer = server(bench, "at once")
    running = Worker(bench, redis, peer, counter=counter)
    drain(queue, [running], jobs)
    account = running.stop()
    check([account], peer.stop(), account["delivered"], jobs * tokens)
    redis.stop()
    return counter.count()


# Jobs per second in all, and the numbers of queues among which they are divided.
TRICKLE_RATE = 48
TRICKLE = {"one queue": 1, "sixteen queues": 16}


def trickle(bench, number):
    """A few jobs per second on each of several queues. Redis' CPU includes the producer's RPUSH."""
    redis = RedisServer(bench)
    peer = server(bench, "at once")
    names = [f"trickle-{index}" for index in range(number)]
    queues = [Queue(redis.client, is_timed=False, name=name) for name in names]
    running = Worker(bench, redis, peer, settings={"APNS_WORKER_QUEUE": ",".join(names)})

    def push(numbers):
        for index in numbers:
            queue = queues[index % len(queues)]
            redis.client("RPUSH", queue.prefix + "jobs", queue.job(index))

    def delivered():
        # Without a script, whose commands would count.
        must_work([running])
        keys = redis.client("KEYS", "push:*:stats:*")
        return sum(int(redis.client("HGET", key, "delivered") or 0) for key in keys)

    # As many with one queue as with several.
    warm_up = 10 * max(TRICKLE.values())
    push(range(warm_up))
    await_true(lambda: delivered() == warm_up, "the worker has warmed up")
    jobs = TRICKLE_RATE * bench.trickle_seconds
    # Activity after the last job has ended after the worker's longest pause.
    time.sleep(1)
    calls, reads = redis.client.others_calls(), redis.client.others_reads()
    redis_us, worker_us = redis.program.cpu_us(), running.program.cpu_us()
    due, step = time.monotonic(), 1 / TRICKLE_RATE
    for index in range(jobs):
        time.sleep(max(0.0, due - time.monotonic()))
        push([warm_up + index])
        # Late ones must not follow at once, because a worker claims them together.
        due = max(due + step, time.monotonic() + step / 2)
    time.sleep(1)
    await_true(lambda: delivered() == warm_up + jobs, "all jobs are settled", pause=0.2)
    redis_us, worker_us = redis.program.cpu_us() - redis_us, running.program.cpu_us() - worker_us
    calls, reads = redis.client.others_calls() - calls, redis.client.others_reads() - reads
    account = running.stop()
    check([account], peer.stop(), account["delivered"], warm_up + jobs)
    redis.stop()
    return {
        "cpu_us": worker_us / jobs, "redis_cpu_us": redis_us / jobs, "redis_commands": calls / jobs, "redis_reads": reads / jobs,
    }


# Jobs per request, requests, and requests of --quick. The connections are kept alive, each with one request at a time.
HTTP = {"one job": (1, 50_000, 2000), "100 jobs": (100, 2500, 100)}
HTTP_CONNECTIONS = 16


def http(bench, jobs, requests, quick_requests):
    """Producers that post so many jobs per request to `apns-worker web`, until Redis has them all."""
    requests = quick_requests if bench.is_quick else requests
    redis = RedisServer(bench)
    web = Web(bench, redis)
    queue = Queue(redis.client)
    body = os.path.join(bench.directory, "jobs.ndjson")
    with open(body, "w", encoding="utf-8") as file:
        # With one key for all requests, the IDs repeat: the dashboard makes each, and no worker reads them.
        file.write("".join(queue.nameless_job(number) + "\n" for number in range(jobs)))

    def post(count, connections):
        h2load = Program(
            "h2load", [
                "h2load", "--h1", "-n", count, "-c", connections, "-t", 1, "-d", body,
                "-H", f"Authorization: Bearer {web.token}", "-H", "Content-Type: application/x-ndjson",
                "-H", "Idempotency-Key: bench", f"{web.url}/api/v1/jobs",
            ], bench.server_cores, bench.directory)
        h2load.wait(300)
        if f"{count} 2xx" not in h2load.said():
            raise Failed(f"h2load did not get {count} times 202:\n{h2load.said()}")
        return h2load

    # Redis learns the script, and the dashboard connects.
    warm_up = 2 * HTTP_CONNECTIONS
    post(warm_up, HTTP_CONNECTIONS)
    web_us, redis_us = web.program.cpu_us(), redis.client.cpu_us()
    h2load = post(requests, HTTP_CONNECTIONS)
    web_us, redis_us = web.program.cpu_us() - web_us, redis.client.cpu_us() - redis_us
    stored = redis.client("LLEN", PREFIX + "jobs")
    peak = web.program.memory_kib("VmHWM")
    web.program.stop()
    redis.stop()
    if stored != (requests + warm_up) * jobs:
        raise Failed(f"Redis has {stored} jobs of {requests + warm_up} requests with {jobs}")
    count = requests * jobs
    return {
        "cpu_us": web_us / count, "rate": count / (h2load.ended - h2load.began), "peak_kib": peak,
        "redis_cpu_us": redis_us / count,
    }


class Web:
    """apns-worker web on one core, and the token of a producer."""

    def __init__(self, bench, redis):
        users = os.path.join(bench.directory, f"users-{redis.port}")
        user = Program(
            "web-user", [f"{bench.measured}/apns-worker", "web-user", "bench", "--role", "producer", "--token", "--queue",
                         "default", "--users", users], bench.server_cores, bench.directory)
        user.wait(30)
        with open(user.errors, encoding="utf-8") as file:
            self.token = re.search(r"token +([0-9a-f]+)", file.read())[1]
        self.program = Program(
            "apns-worker-web", [f"{bench.measured}/apns-worker", "web", "--port", 0, "--redis", redis.url, "--users", users],
            bench.client_cores(1), bench.directory)
        await_true(
            lambda: "dashboard  http" in self.program.said() or self.program.has_ended(), "the dashboard is open")
        if self.program.has_ended():
            raise self.program.failed("did not start")
        self.url = re.search(r"dashboard  (http\S+)/", self.program.said())[1]


def micro(bench, _):
    """The hot parts one by one."""
    redis = RedisServer(bench)
    program = Program(
        "micro", [f"{bench.measured}/Benchmarks", "micro", "--job", bench.job, "--redis", redis.url, "--key", bench.key,
                  "--thousands", bench.notifications["delayed"] // 1000], bench.client_cores(1), bench.directory)
    program.wait(300)
    redis.stop()
    costs = json.loads(program.said())
    return {f"{part}.{unit}": value for part, cost in costs.items() for unit, value in cost.items()}
