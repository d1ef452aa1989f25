"""Compares the programs of two commits, which were measured in the same rounds."""

from statistics import median

# The metrics to compare: {metric: (title, digits after the point, True if more is better)}.
METRICS = {
    "cpu_us": ("CPU µs", 2, False), "rate": ("per second", 0, True), "redis_cpu_us": ("Redis µs", 2, False),
    "redis_trips_per_256_jobs": ("trips/256", 2, False), "redis_commands": ("Redis commands", 2, False),
    "redis_reads": ("Redis reads", 2, False), "peak_kib": ("peak KiB", 0, False), "instructions": ("instructions", 0, False),
    "of_limit": ("claim × limit", 2, False), "settlement_p99_ms": ("settlement p99 ms", 2, False),
}


def rows(before, now):
    """Returns a row for each metric that both programs have, in the order of the measurements.

    before, now: {name: {setting: {metric: [value of each round]}}}.
    """
    found = []
    for name, settings in now.items():
        for setting, metrics in settings.items():
            for metric, values in metrics.items():
                earlier = before.get(name, {}).get(setting, {}).get(metric)
                if metric in METRICS and earlier:
                    found.append({
                        "figure": name.replace(".", " ", 1), "setting": setting, "metric": metric,
                        **compared(earlier, values, METRICS[metric][2])})
    return found


def compared(before, now, more_is_better):
    """Returns the medians, the ratios of the rounds, and if the second program is worse by more than the spread of the ratios."""
    ratios = [second / first for first, second in zip(before, now, strict=True)]
    middle, least, most = median(ratios), min(ratios), max(ratios)
    # Rounded as in the table, so that the table explains the verdict.
    excess = round(1 - middle if more_is_better else middle - 1, 3)
    return {
        "before": median(before), "now": median(now), "ratio": middle, "least": least, "most": most,
        "worse": excess > 0 and (least == most or excess > round(most - least, 3)),
    }


def absent(before, now):
    """Returns the metrics that only the second program has, as {name: reason}."""
    found = {}
    for name, settings in now.items():
        for setting, metrics in settings.items():
            for metric in metrics.keys() - before.get(name, {}).get(setting, {}).keys():
                if metric in METRICS:
                    found[f"{name.replace('.', ' ', 1)}, {METRICS[metric][0]}"] = "the earlier program does not report it"
    return found


def table(header, compared_rows, left_out):
    """Returns the table as a text: a row for each metric, and a line for each figure that was left out."""
    lines = [
        header, "",
        f"{'figure':<30}{'answers':<9}{'metric':<19}{'before':>12}{'now':>12}{'ratio':>8}  least–most",
    ]
    previous = None
    for row in compared_rows:
        metric, digits, _ = METRICS[row["metric"]]
        place = (row["figure"], row["setting"])
        figure, setting = ("", "") if place == previous else place
        previous = place
        lines.append(
            f"{figure:<30}{setting:<9}{metric:<19}{row['before']:>12,.{digits}f}{row['now']:>12,.{digits}f}"
            f"{row['ratio']:>8.3f}  {row['least']:.3f}–{row['most']:.3f}{'  WORSE' if row['worse'] else ''}")
    lines += [f"{name:<30}left out: {reason.splitlines()[0].rstrip(':')}" for name, reason in left_out.items()]
    worse = sum(row["worse"] for row in compared_rows)
    lines += ["", f"{worse} of {len(compared_rows)} worse by more than the spread of the rounds"]
    return "\n".join(line.rstrip() for line in lines)
