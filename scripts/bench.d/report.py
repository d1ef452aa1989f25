"""The report of the measurements: medians, goals, and a table."""

import os
import platform
import re
from statistics import median

MEMORY_LIMIT_KIB = 32 * 1024


def summary(values):
    return {"median": round(median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


def figures_of(values):
    """Returns {figure: {setting or part: {metric: median, minimum and maximum}}}."""
    figures = {}
    for name, settings in values.items():
        # The name of a backlog of large jobs can contain a dot.
        figure, _, part = name.partition(".")
        for setting, metrics in settings.items():
            figures.setdefault(figure, {})[part or setting] = {
                metric: summary(numbers) for metric, numbers in metrics.items()}
    return figures


def ratio(values, setting, one, other, cost="cpu_us"):
    """Returns the ratio of the costs of two figures: the median of the rounds' ratios, because the machine's speed drifts."""
    pairs = zip(values[one][setting][cost], values[other][setting][cost])
    return median(first / second for first, second in pairs)


def goals(values):
    """Returns the goals whose figures were measured, each with its result."""
    figures, found = figures_of(values), []

    def goal(figure, setting, text, value, limit, unit):
        # Rounded as in the report, because the rounds do not agree on more than three digits.
        value = float(f"{value:.3g}")
        found.append({"figure": figure, "setting": setting, "goal": text, "value": value, "unit": unit, "met": value <= limit})

    for setting in figures.get("limit", {}):
        for name, factor in (("worker", 1.0), ("fanout", 0.6 if setting == "at once" else 0.8)):
            if setting in figures.get(name, {}):
                goal(name, setting, f"at most {factor} × limit", ratio(values, setting, name, "limit"), factor, "× limit")
    for setting, worker in figures.get("worker", {}).items():
        redis = 2.0 if setting == "at once" else 3.0
        goal("worker", setting, f"Redis takes at most {redis} µs for a job", worker["redis_cpu_us"]["median"], redis, "µs")
        if lookup := figures.get("lookup", {}).get(setting):
            goal("lookup", setting, "at most 3 % more than without", ratio(values, setting, "lookup", "worker"), 1.03, "× worker")
            goal("lookup", setting, "Redis takes at most 3.3 µs for a token", lookup["redis_cpu_us"]["median"], 3.3, "µs")
        goal("worker", setting, "at most 3 round trips to Redis for 256 jobs",
             worker["redis_trips_per_256_jobs"]["median"], 3, "trips")
    one, several = "trickle.one queue", "trickle.sixteen queues"
    if one in values and several in values:
        for cost, whose in (("redis_cpu_us", "Redis'"), ("cpu_us", "the worker's")):
            goal("trickle", "", f"16 queues at most 1.5 × {whose} CPU of one", ratio(values, "", several, one, cost), 1.5,
                 "× one queue")
    for name, large in figures.get("large", {}).items():
        goal("large", name, "99 % of settlements up to 10 ms", large["settlement_p99_ms"]["median"], 10, "ms")
        goal("large", name, "claims up to 5 ms + 1 ms per 100 kB", large["of_limit"]["median"], 1, "× limit")
    for looking in figures.get("looking", {}).values():
        goal("looking", "", "under 1 % of a core of Redis", looking["redis_percent"]["median"], 1, "%")
    peaks = [metrics["peak_kib"]["max"] for name in ("worker", "fanout") for metrics in figures.get(name, {}).values()]
    if peaks:
        goal("memory", "", "under 32 MiB with one lane", max(peaks) / 1024, MEMORY_LIMIT_KIB / 1024, "MiB")
    return found


def header(options, counter_name):
    counter = f"; instructions by {counter_name}" if counter_name else ""
    quick = "; QUICK: too few for figures" if options.quick else ""
    return f"{machine()}; median of {options.rounds} rounds (least–most){counter}{quick}"


def table(heading, values, left_out):
    lines = [
        heading, "", f"{'figure':<24}{'answers':<9}{'CPU µs a notification':<24}{'a second':>9}{'peak MiB':>10}"
        f"{'Redis µs':>10}{'trips/256':>11}",
    ]
    figures = figures_of(values)
    for name in ("limit", "worker", "lookup", "fanout"):
        lines += [cost_row(name, setting, metrics) for setting, metrics in figures.get(name, {}).items()]
    if large := figures.get("large"):
        lines += ["", f"{'claims from a backlog of':<24}{'claims':>8}{'kB each':>9}{'median ms':>11}{'p99 ms':>8}"
                  f"{'worst ms':>10}{'worst CPU ms':>14}{'of limit':>10}{'worst PING ms':>15}"]
        lines += [large_row(name, metrics) for name, metrics in large.items()]
        lines += ["", f"{'settlements of jobs of':<24}{'calls':>8}{'median ms':>11}{'p99 ms':>8}{'worst ms':>10}"]
        lines += [settlement_row(name, metrics) for name, metrics in large.items()]
    for name, metrics in figures.get("trickle", {}).items():
        lines.append(f"{'trickle, ' + name:<33}{spread(metrics['cpu_us'], 0)} µs per job, Redis "
                     f"{spread(metrics['redis_cpu_us'], 0)} µs, {metrics['redis_commands']['median']:.2f} commands and "
                     f"{metrics['redis_reads']['median']:.2f} reads")
    for metrics in figures.get("looking", {}).values():
        lines.append(f"{'looking':<33}{spread(metrics['redis_percent'], 2)} % of a core of Redis, "
                     f"{spread(metrics['redis_kb_per_second'], 0)} kB a second")
    for name, metrics in figures.get("instructions", {}).items():
        lines.append(f"{'instructions, ' + name:<33}{spread(metrics['instructions'], 0)} per notification")
    lines += [f"{name:<24}left out: {reason.splitlines()[0].rstrip(':')}" for name, reason in left_out.items()]
    if found := goals(values):
        lines += ["", f"{'goal':<62}{'reached':<24}"]
    for one in found:
        what = f"{one['figure']}{' (' + one['setting'] + ')' if one['setting'] else ''}: {one['goal']}"
        reached = f"{one['value']:.3g} {one['unit']}"
        lines.append(f"{what:<62}{reached:<24}{'met' if one['met'] else 'MISSED'}")
    return "\n".join(line.rstrip() for line in lines)


def cost_row(name, setting, metrics):
    row = f"{name:<24}{setting:<9}{spread(metrics['cpu_us'], 2):<24}{metrics['rate']['median']:>9,.0f}"
    if "peak_kib" in metrics:
        row += f"{metrics['peak_kib']['median'] / 1024:>10.1f}{metrics['redis_cpu_us']['median']:>10.2f}"
    if "redis_trips_per_256_jobs" in metrics:
        row += f"{metrics['redis_trips_per_256_jobs']['median']:>11.2f}"
    return row


def large_row(name, metrics):
    """Returns a row of the rounds' medians. Columns of the longest times have the maximum of all rounds."""
    return (f"{name:<24}{metrics['claims']['median']:>8.0f}{metrics['bytes']['median'] / 1000:>9,.0f}"
            f"{metrics['median_ms']['median']:>11.2f}{metrics['p99_ms']['median']:>8.2f}{metrics['worst_ms']['max']:>10.2f}"
            f"{metrics['worst_cpu_ms']['max']:>14.2f}{metrics['of_limit']['median']:>10.2f}{metrics['ping_ms']['max']:>15.1f}")


def settlement_row(name, metrics):
    """Returns a row of the rounds' medians. Columns of the longest times have the maximum of all rounds."""
    return (f"{name:<24}{metrics['settlements']['median']:>8.0f}{metrics['settlement_median_ms']['median']:>11.2f}"
            f"{metrics['settlement_p99_ms']['median']:>8.2f}{metrics['settlement_worst_ms']['max']:>10.2f}")


def spread(metric, digits):
    return f"{metric['median']:,.{digits}f} ({metric['min']:,.{digits}f}–{metric['max']:,.{digits}f})"


def machine():
    """Returns the processor, the number of cores and the system."""
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if found := re.search(r"model name\s*: (.*)", file.read()):
            cpu = found[1].strip()
    release = platform.freedesktop_os_release()
    return f"{cpu}, {os.cpu_count()} cores, {release.get('PRETTY_NAME', release['NAME'])}"
