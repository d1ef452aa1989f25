"""The constants of `apns-worker plan`, and its predictions of measurements from which they were not made."""

import functools
import json
import os
import subprocess
import time
from statistics import median

import figures
from programs import Failed, clean_environment
from report import machine
from servers import Simulator

# The tokens per job for which the constants are measured, at once and delayed.
SIZES = (1, 10, 100, 1000)
# The mean of the delayed answers; see servers.DELAY.
ANSWER_MS = 20
# Other fleets and work. The streams limit the rate, as with APNs: a machine with few cores has none for a simulator that is
# faster than a lane. The rates are near those of the constants: at lower ones a notification costs more, of a small load.
PREDICTED = {
    "1 token, 80 ms, 2 connections": {"tokens": 1, "delay_ms": 80, "streams": 1000, "connections": 2},
    "1 token, 20 ms, 2 lanes": {"tokens": 1, "delay_ms": 20, "streams": 500, "lanes": 2},
    "3 tokens, 40 ms": {"tokens": 3, "delay_ms": 40, "streams": 1000},
    "30 tokens, 12 ms": {"tokens": 30, "delay_ms": 12, "streams": 250},
    "300 tokens, 80 ms": {"tokens": 300, "delay_ms": 80, "streams": 1000, "connections": 2},
    "5,000 tokens, 40 ms": {"tokens": 5000, "delay_ms": 40, "streams": 1000},
}
MEASURED = ("per_second", "worker_us", "redis_us", "job_bytes")


def measure_size(bench, setting, tokens):
    """Measures one of the constants' samples."""
    result = figures.work(bench, setting, tokens=tokens)
    bench.samples[tokens, setting] = result
    return result


def sample(result):
    return {
        "per_second": round(result["rate"]), "worker_us": round(result["cpu_us"], 3),
        "redis_us": round(result["redis_cpu_us"], 4)}


@functools.cache
def here():
    return machine()


def constants(samples):
    """Returns the constants in the form that the program reads.

    samples: {(tokens per job, setting): the metrics of figures.work}.
    """
    place = here()
    return {
        "machine": f"{place['cpu']}, {place['cores']} cores, {place['os']}", "commit": place["versions"]["commit"],
        "measured_at": int(time.time() * 1000), "answer_ms": ANSWER_MS, "streams": figures.STREAMS,
        "worker_bytes": round(1024 * max(result["peak_kib"] for result in samples.values())),
        "job_sizes": [
            {
                "tokens": tokens, "job_bytes": round(samples[tokens, "delayed"]["job_bytes"]),
                "at_once": sample(samples[tokens, "at once"]), "delayed": sample(samples[tokens, "delayed"]),
            } for tokens in SIZES],
    }


def medians(values):
    """Returns the constants of the medians of all rounds."""
    samples = {}
    for tokens in SIZES:
        for setting, metrics in values[f"plan.size {tokens}"].items():
            samples[tokens, setting] = {metric: median(numbers) for metric, numbers in metrics.items()}
    return constants(samples)


def predict(bench, name):
    """Measures a fleet, and compares it with the plan that follows from the constants of the same round."""
    options = dict(PREDICTED[name])
    delay = options.pop("delay_ms")
    tokens = options["tokens"]
    # About as long as the other measurements.
    count = bench.notifications["delayed"] // tokens
    found = figures.work(
        bench, "at once", jobs=max(1, count),
        peer=lambda bench, setting: Simulator(bench, setting, "--delay", f"{delay}ms±{delay // 4}ms"), **options)
    measured = {
        "per_second": found["rate"], "worker_us": found["cpu_us"], "redis_us": found["redis_cpu_us"],
        "job_bytes": found["job_bytes"]}
    plan = planned(bench, found["rate"], delay, options)
    predicted = {
        "per_second": plan["maximum_per_second"], "worker_us": 1e6 * plan["worker_cores"] / plan["per_second"],
        "redis_us": 1e6 * plan["redis_cores"] / plan["per_second"], "job_bytes": plan["redis_bytes"] / plan["jobs"]}
    result = {}
    for value in MEASURED:
        result[value], result[f"predicted_{value}"] = measured[value], predicted[value]
    result["off"] = max(abs(predicted[value] / measured[value] - 1) for value in MEASURED)
    result["rate_off"] = abs(predicted["per_second"] / measured["per_second"] - 1)
    return result


def planned(bench, rate, delay, options):
    """Returns the plan for one worker at this rate."""
    path = os.path.join(bench.directory, "constants.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(constants(bench.samples), file)
    # An hour of this rate, so that rounding to whole jobs has no effect.
    command = [
        f"{bench.bin}/apns-worker", "plan", "--json", "--constants", path, "--tokens", round(rate * 3600),
        "--within", "1h", "--job-size", options["tokens"], "--latency", f"{delay}ms", "--workers", 1, "--lanes", options.get("lanes", 1),
        "--connections", options.get("connections", 1), "--streams", options["streams"]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=clean_environment())
    # 1: the plan is slower than the measurement.
    if done.returncode not in (0, 1):
        raise Failed(f"apns-worker plan: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)
