"""The report of the measurements: medians, goals, and a table."""

import json
import os
import platform
import re
import subprocess
from statistics import median

MEMORY_LIMIT_KIB = 32 * 1024


def summary(values):
    return {"median": round(median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


def figures_of(values, only):
    figures = {}
    for name, settings in values.items():
        for setting, metrics in settings.items():
            for metric, numbers in metrics.items():
                place(figures, name, setting, metric, only)[metric.split(".")[-1]] = summary(numbers)
    return figures


def page(values, left_out, bench, options):
    figures = figures_of(values, options.only)
    return {
        "machine": machine(), "rounds": options.rounds, "server": options.server, "quick": options.quick,
        "instructions_by": bench.counter_name, "notifications": {**bench.notifications, **bench.consumer_notifications},
        "pinned": {"client": bench.client_cores(1), "servers": bench.server_cores, "cores": len(bench.cores)},
        "figures": figures, "compared": compared(values), "left_out": left_out, "goals": goals(figures, values),
    }


def as_json(value, indent=""):
    """Returns JSON with each innermost object or list in one line, and others that fit."""
    text = json.dumps(value, ensure_ascii=False)
    parts = list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else [])
    if len(indent + text) <= 120 or not any(isinstance(part, (dict, list)) for part in parts):
        return text
    deeper = indent + "  "
    names = [json.dumps(name, ensure_ascii=False) + ": " for name in value] if isinstance(value, dict) else [""] * len(parts)
    lines = ",\n".join(deeper + name + as_json(part, deeper) for name, part in zip(names, parts))
    return f"{text[0]}\n{lines}\n{indent}{text[-1]}"


def place(figures, name, setting, metric, only):
    """Returns the figure of a metric. Parts are measured together but each is a figure; those of `scale` are nested."""
    if name == "micro":
        part = metric.split(".")[0]
        return figures.setdefault(part, {}) if part in only or part == "answer" else {}
    if name == "scale.backlogs":
        size = metric.split(".")[0]
        name = f"scale.backlog {size}" if size != metric else "flatness"
    # The name of a backlog of large jobs can contain a dot.
    keys = name.split(".", 1) if name.startswith("large.") else name.split(".")
    target = figures
    for key in keys:
        target = target.setdefault(key, {})
    return target.setdefault(setting, {}) if setting else target


def ratio(values, setting, one, other, cost="cpu_us"):
    """Returns the median of the rounds' ratios of a figure's cost to another's, because the machine's speed drifts."""
    pairs = zip(values[one][setting][cost], values[other][setting][cost])
    return median(first / second for first, second in pairs)


def gain(values, setting, one, other):
    """Returns the same ratio of their notifications per second."""
    pairs = zip(values[one][setting]["rate"], values[other][setting]["rate"])
    return median(first / second for first, second in pairs)


def compared(values):
    """Compares the consumers with the worker in the same rounds: {name: {setting: {"cpu": multiple, "rate": multiple}}}."""
    found = {}
    for name in ("go", "python"):
        for setting in values.get(name, {}):
            if setting in values.get("worker", {}):
                found.setdefault(name, {})[setting] = {
                    "cpu": ratio(values, setting, name, "worker"), "rate": gain(values, setting, name, "worker")}
    return found


def goals(figures, values):
    """Returns the goals whose figures were measured, each with its result."""
    found = []

    def goal(figure, setting, text, value, limit, unit, at_least=False):
        # Compared as printed: the rounds do not agree on more than three digits.
        value = float(f"{value:.3g}")
        met = value >= limit if at_least else value <= limit
        found.append({
            "figure": figure, "setting": setting, "goal": text, "value": value, "unit": unit, "met": met})

    def settings_of(*path):
        node = figures
        for key in path:
            node = node.get(key, {})
        return node.items()

    for setting, _ in settings_of("limit"):
        for name, factor in (("worker", 1.0), ("fanout", 0.6 if setting == "at once" else 0.8)):
            if setting in figures.get(name, {}):
                goal(name, setting, f"at most {factor} × limit", ratio(values, setting, name, "limit"), factor, "× limit")
    for setting, worker in settings_of("worker"):
        redis = 2.0 if setting == "at once" else 3.0
        goal("worker", setting, f"Redis takes at most {redis} µs for a job", worker["redis_cpu_us"]["median"], redis, "µs")
        for name, without, most in (("lookup", "worker", 3.3), ("lookup_fanout", "fanout", 0.4)):
            if setting in figures.get(name, {}) and setting in figures.get(without, {}):
                goal(name, setting, "at most 3 % more than without", ratio(values, setting, name, without), 1.03,
                     f"× {without}")
                goal(name, setting, f"Redis takes at most {most} µs for a token",
                     figures[name][setting]["redis_cpu_us"]["median"], most, "µs")
        goal("worker", setting, "at most 3 round trips to Redis for 256 jobs",
             worker["redis_trips_per_256_jobs"]["median"], 3, "trips")
    if "gateway" in figures and "worker" in figures:
        goal("gateway", "at once", "as many a second as over HTTP/2",
             gain(values, "at once", "gateway", "worker"), 1, "× worker", at_least=True)
        goal("gateway", "at once", "at most the CPU of HTTP/2", ratio(values, "at once", "gateway", "worker"), 1,
             "× worker")
    scale_goals(figures, values, goal)
    one, several = "trickle.one queue", "trickle.sixteen queues"
    if one in values and several in values:
        for cost, whose in (("redis_cpu_us", "Redis'"), ("cpu_us", "the worker's")):
            goal("trickle", "", f"16 queues at most 1.5 × {whose} CPU of one", ratio(values, "", several, one, cost), 1.5,
                 "× one queue")
    if single := figures.get("http", {}).get("one job"):
        goal("http", "one job", "at least 5,000 jobs per second", single["rate"]["median"] / 1000, 5, "thousand",
             at_least=True)
    for setting, latency in settings_of("latency"):
        goal("latency", setting, "p99 under 1 ms", latency["p99_us"]["median"] / 1000, 1, "ms")
        goal("latency", setting, "p99.9 under 5 ms", latency["p999_us"]["median"] / 1000, 5, "ms")
    for name, large in figures.get("large", {}).items():
        goal("large", name, "99 % of settlements up to 10 ms", large["settlement_p99_ms"]["median"], 10, "ms")
        goal("large", name, "claims up to 5 ms + 1 ms per 100 kB", large["of_limit"]["median"], 1, "× limit")
    if idle := figures.get("idle"):
        goal("idle", "", "under 0.2 % of a core", idle["cpu_percent"]["median"], 0.2, "%")
        goal("idle", "", "at most 2 commands a second", idle["redis_commands_per_second"]["median"], 2, "a second")
    return found


def scale_goals(figures, values, goal):
    scale = figures.get("scale", {})
    for setting, flatness in figures.get("flatness", {}).items():
        goal("scale", setting, "cost flat within 10 % over all backlogs", flatness["flatness"]["median"], 1.1,
             "× the least")
        # By CPU time, because cores may be short: two lanes on two free cores would reach this multiple of one lane.
        work = 2 * ratio(values, setting, "scale.lanes 1", "scale.lanes 2")
        goal("scale", setting, "2 lanes do at least 1.9 × the work of one", work, 1.9, "× by CPU", at_least=True)
    one_lane = [figures.get("worker", {}), figures.get("fanout", {})]
    one_lane += [settings for name, settings in scale.items() if name != "lanes 2"]
    peaks = [metrics["peak_kib"]["max"] for settings in one_lane for metrics in settings.values()]
    if peaks:
        goal("memory", "", "under 32 MiB with one lane, whatever the backlog", max(peaks) / 1024,
             MEMORY_LIMIT_KIB / 1024, "MiB")


def header(page):
    counter = f"; instructions by {page['instructions_by']}" if page["instructions_by"] else ""
    quick = "; QUICK: too few for figures" if page["quick"] else ""
    return (f"{page['machine']['cpu']}, {page['machine']['cores']} cores, {page['machine']['os']}; "
            f"server: {page['server']}; median of {page['rounds']} rounds (least–most){counter}{quick}")


def table(page):
    lines = [
        header(page), "", f"{'figure':<24}{'answers':<9}{'CPU µs a notification':<24}{'a second':>9}{'peak MiB':>10}"
        f"{'Redis µs':>10}{'trips/256':>11}",
    ]
    figures = page["figures"]
    names = ("limit", "worker", "go", "python", "gateway", "lookup", "fanout", "lookup_fanout")
    rows = [(name, figures[name]) for name in names if name in figures]
    rows += [("scale, " + name, settings) for name, settings in figures.get("scale", {}).items()]
    for name, settings in rows:
        for setting, metrics in settings.items():
            lines.append(cost_row(name, setting, metrics))
    for name in ("encode", "answer", "decode", "claim", "settle"):
        if name in figures:
            lines.append(f"{name:<33}{spread(figures[name]['ns'], 0)} ns, "
                         f"{figures[name]['allocations']['median']:.2f} allocations")
    if large := figures.get("large"):
        lines += ["", f"{'claims from a backlog of':<24}{'claims':>8}{'kB each':>9}{'median ms':>11}{'p99 ms':>8}"
                  f"{'worst ms':>10}{'worst CPU ms':>14}{'of limit':>10}{'worst PING ms':>15}"]
        lines += [large_row(name, metrics) for name, metrics in large.items()]
        lines += ["", f"{'settlements of jobs of':<24}{'calls':>8}{'median ms':>11}{'p99 ms':>8}{'worst ms':>10}"]
        lines += [settlement_row(name, metrics) for name, metrics in large.items()]
    for setting, metrics in figures.get("latency", {}).items():
        parts = [f"{label} {spread(metrics[metric], 0)}"
                 for metric, label in (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9"))]
        lines.append(f"{'latency':<24}{setting:<9}{', '.join(parts)} µs")
    if idle := figures.get("idle"):
        lines.append(f"{'idle':<33}{spread(idle['cpu_percent'], 3)} % of a core, "
                     f"{idle['memory_kib']['median'] / 1024:.1f} MiB, "
                     f"{spread(idle['redis_commands_per_second'], 2)} Redis commands a second, "
                     f"{idle['start_cpu_ms']['median']:.1f} ms of CPU to start")
    for name, metrics in figures.get("trickle", {}).items():
        lines.append(f"{'trickle, ' + name:<33}{spread(metrics['cpu_us'], 0)} µs per job, Redis "
                     f"{spread(metrics['redis_cpu_us'], 0)} µs, {metrics['redis_commands']['median']:.2f} commands and "
                     f"{metrics['redis_reads']['median']:.2f} reads")
    for name, metrics in figures.get("http", {}).items():
        lines.append(f"{'http, ' + name:<33}{spread(metrics['rate'], 0)} jobs per second, "
                     f"{spread(metrics['cpu_us'], 1)} µs per job, Redis {spread(metrics['redis_cpu_us'], 1)} µs")
    for name, metrics in figures.get("instructions", {}).items():
        lines.append(f"{'instructions, ' + name:<33}{spread(metrics['instructions'], 0)} per notification")
    if profile := figures.get("profile"):
        lines += ["", *profile_lines(profile), ""]
    for name, settings in page["compared"].items():
        for setting, multiples in settings.items():
            lines.append(f"{name + ' / worker':<24}{setting:<9}{multiples['cpu']:.3g} × the CPU, "
                         f"{multiples['rate']:.2g} × the rate")
    lines += [f"{name:<24}left out: {reason.splitlines()[0].rstrip(':')}" for name, reason in page["left_out"].items()]
    if page["goals"]:
        lines += ["", f"{'goal':<62}{'reached':<24}"]
    for one in page["goals"]:
        what = f"{one['figure']}{' (' + one['setting'] + ')' if one['setting'] else ''}: {one['goal']}"
        reached = f"{one['value']:.3g} {one['unit']}"
        lines.append(f"{what:<62}{reached:<24}{'met' if one['met'] else 'MISSED'}")
    return "\n".join(line.rstrip() for line in lines)


def cost_row(name, setting, metrics):
    row = f"{name:<24}{setting:<9}{spread(metrics['cpu_us'], 2):<24}{metrics['rate']['median']:>9,.0f}"
    if "peak_kib" in metrics:
        redis = f"{metrics['redis_cpu_us']['median']:.2f}" if "redis_cpu_us" in metrics else ""
        row += f"{metrics['peak_kib']['median'] / 1024:>10.1f}{redis:>10}"
    if "redis_trips_per_256_jobs" in metrics:
        row += f"{metrics['redis_trips_per_256_jobs']['median']:>11.2f}"
    return row


def profile_lines(profile):
    """Returns the shares for each kind of job, the largest first, without those that round to 0."""
    lines = [f"{'share of CPU samples, %':<33}" + "".join(f"{name:>14}" for name in profile)]
    names = sorted(next(iter(profile.values())), reverse=True, key=lambda row: sum(
        metrics[row]["median"] for metrics in profile.values()))
    for row in names:
        medians = [metrics[row]["median"] for metrics in profile.values()]
        if row != "samples" and max(medians) >= 0.05:
            lines.append(f"{row:<33}" + "".join(f"{share:>14.1f}" for share in medians))
    samples = [metrics["samples"]["median"] for metrics in profile.values()]
    lines.append(f"{'samples in a round':<33}" + "".join(f"{count:>14,.0f}" for count in samples))
    return lines


def large_row(name, metrics):
    """Returns medians of the rounds; for times, the longest."""
    return (f"{name:<24}{metrics['claims']['median']:>8.0f}{metrics['bytes']['median'] / 1000:>9,.0f}"
            f"{metrics['median_ms']['median']:>11.2f}{metrics['p99_ms']['median']:>8.2f}{metrics['worst_ms']['max']:>10.2f}"
            f"{metrics['worst_cpu_ms']['max']:>14.2f}{metrics['of_limit']['median']:>10.2f}{metrics['ping_ms']['max']:>15.1f}")


def settlement_row(name, metrics):
    """Returns medians of the rounds; for times, the longest."""
    return (f"{name:<24}{metrics['settlements']['median']:>8.0f}{metrics['settlement_median_ms']['median']:>11.2f}"
            f"{metrics['settlement_p99_ms']['median']:>8.2f}{metrics['settlement_worst_ms']['max']:>10.2f}")


def spread(metric, digits):
    return f"{metric['median']:,.{digits}f} ({metric['min']:,.{digits}f}–{metric['max']:,.{digits}f})"


def machine():
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if found := re.search(r"model name\s*: (.*)", file.read()):
            cpu = found[1].strip()
    release = platform.freedesktop_os_release()
    return {
        "cpu": cpu, "cores": os.cpu_count(), "os": release.get("PRETTY_NAME", release["NAME"]),
        "kernel": platform.release(),
        "versions": {
            "swift": said("swift", "--version"), "redis": said("redis-server", "--version"),
            "h2load": said("h2load", "--version"), "nginx": said("nginx", "-v"),
            "openssl": said("openssl", "version"), "go": said("go", "version"), "python": platform.python_version(),
            "commit": said("git", "describe", "--always", "--dirty"),
        },
    }


def said(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError:
        return "unknown"
    lines = [line for line in done.stdout.splitlines() if re.search(r"\d", line)]
    return lines[0].strip() if lines else "unknown"
