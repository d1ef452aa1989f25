"""Measures the cost of a notification and other figures. scripts/bench builds the programs and runs this."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import compare
import figures
import report
from programs import Failed, Program, Refused, Unavailable

FIGURES = ("limit", "worker", "fanout", "lookup", "large", "trickle", "looking", "instructions")
# --against cannot compare h2load with itself.
NOT_COMPARED = {"limit"}


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench", allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""figures:
  limit    h2load with the same headers and body: CPU of the bare request
  worker   apns-worker from Redis to settlement, one lane
  fanout   worker with 1,000 tokens per job
  lookup   worker that has read a million invalid tokens from Redis; no job has one of these tokens
  large    the time for which a claim and a settlement block Redis, with jobs of up to 6.7 MB
  trickle  three jobs per second on each of sixteen queues, and as many on one queue
  looking  Redis' CPU for ten open pages and a `status` each second, with 50,000 retries of 68 kB and two million jobs
  instructions   of limit, worker and fanout in user space per notification: by `perf stat`, or by callgrind if that is not permitted
The first four are measured twice: with a server that answers at once, and with one that answers after 20±5 ms, out of order.

--against COMMIT builds the programs of COMMIT in .build-against with this checkout's versions of packages. It measures them and
this checkout's programs in alternation, and prints one table: each figure before and now, and their ratio, which is the median
of the rounds' ratios. WORSE marks a change for the worse that exceeds the spread of the rounds' ratios; the exit status is 0
unless a measurement fails. limit is left out, and so are figures that the programs of COMMIT do not support.""")
    parser.add_argument("--bin", help=argparse.SUPPRESS)
    parser.add_argument("--bin-against", help=argparse.SUPPRESS)
    parser.add_argument("--against", metavar="COMMIT", help="compare with the programs of another commit")
    # Prints the needs of `instructions`, as arguments of `need` in scripts/lib.sh.
    parser.add_argument("--needs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, metavar="N", help="5 unless --quick, then 2")
    parser.add_argument("--quick", action="store_true", help="measure a tenth, as a test of the benchmark")
    parser.add_argument("--only", metavar="FIGURE,…", help="measure only these figures")
    options = parser.parse_args()
    if not options.bin and not options.needs:
        parser.error("--bin is required; scripts/bench gives it")
    options.rounds = options.rounds or (2 if options.quick else 5)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    figure_names = [name for name in FIGURES if not (options.against and name in NOT_COMPARED)]
    options.only = set(options.only.split(",")) if options.only else set(figure_names)
    if unknown := options.only - set(FIGURES):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not a figure; the figures are {', '.join(FIGURES)}")
    if options.against:
        check_against(parser, options, figure_names)
    return options


def check_against(parser, options, figure_names):
    if others := options.only - set(figure_names):
        parser.error(f"--against cannot compare {', '.join(sorted(others))}; it compares {', '.join(figure_names)}")
    if options.rounds < 2:
        parser.error("--against needs at least 2 rounds, because one has no spread")
    if not (options.bin_against or options.needs):
        parser.error("--bin-against is required; scripts/bench gives it")


class Bench:
    """The settings that all measurements share: paths, numbers and cores."""

    key_id, team_id = "ABC123DEFG", "TEAM123456"

    def __init__(self, options, directory):
        # `bin` has the simulator and the other tools. `measured` has the programs to measure: `bin` or `bin_against`.
        self.bin = self.measured = os.path.abspath(options.bin)
        self.bin_against = os.path.abspath(options.bin_against) if options.against else None
        self.is_quick = options.quick
        # The name of the program that counted instructions; None before that.
        self.counter_name = None
        self.directory = directory
        self.certificates = os.path.join(directory, "certificates")
        self.key = os.path.join(self.certificates, f"AuthKey_{self.key_id}.p8")
        # A worker's start and end take 20 ms of CPU, which is less than 1 % of the CPU for so many notifications. With late answers
        # a notification costs about twice as much.
        self.notifications = {"at once": 500_000, "delayed": 250_000}
        if options.quick:
            self.notifications = {"at once": 20_000, "delayed": 20_000}
        self.trickle_seconds = 3 if options.quick else 20
        # The bytes of each backlog of large jobs.
        self.large_backlog = 20_000_000 if options.quick else 100_000_000
        cores = sorted(os.sched_getaffinity(0))
        # The worker has the last core, and the servers the first. On a machine with one core, they share it.
        self.server_cores, self.client_cores = cores[:1], cores[-1:]

    def plan(self, only):
        """Returns the measurements of one round, as (name, setting, measurement)."""
        plan = [(name, setting, getattr(figures, name)) for setting in ("at once", "delayed")
                for name in ("limit", "worker", "lookup", "fanout") if name in only]
        if "large" in only:
            plan += [(f"large.{name}", "", with_mix(mix)) for name, mix in figures.LARGE.items()]
        if "trickle" in only:
            plan += [(f"trickle.{name}", "", with_queues(number)) for name, number in figures.TRICKLE.items()]
        if "looking" in only:
            plan.append(("looking", "", figures.looking))
        if "instructions" in only:
            names = ("worker", "fanout") if self.bin_against else ("limit", "worker", "fanout")
            plan += [(f"instructions.{name}", "", with_counter(name)) for name in names]
        return plan


def with_mix(mix):
    return lambda bench, _: figures.large(bench, mix)


def with_queues(number):
    return lambda bench, _: figures.trickle(bench, number)


def with_counter(name):
    return lambda bench, _: figures.instructions(bench, name)


def measure(bench, options):
    """Runs all rounds. With --against, each round also measures the programs of the other commit.

    Returns {"now" or "before": {name: {setting: {metric: [value of each round]}}}}, and {name: reason} of omitted figures.
    """
    programs = {"now": bench.bin}
    if options.against:
        programs["before"] = bench.bin_against
    values, left_out = {program: {} for program in programs}, {}
    plan = bench.plan(options.only)
    for number in range(options.rounds):
        # The order alternates, so that a drift of the machine's speed favours neither program.
        order = list(programs.items())[::1 if number % 2 else -1]
        for name, setting, measurement in plan:
            figure = name.split(".")[0]
            if figure in left_out:
                continue
            results = {}
            try:
                for program, bench.measured in order:
                    what = f"{name.replace('.', ' ', 1)}{', ' + setting if setting else ''}"
                    what += f", {program}" if options.against else ""
                    print(f"round {number + 1} of {options.rounds}: {what}", end=" … ", file=sys.stderr, flush=True)
                    results[program] = result = measurement(bench, setting)
                    print(", ".join(f"{value:.4g} {metric}" for metric, value in result.items()), file=sys.stderr)
            except (Unavailable, Refused) as reason:
                if isinstance(reason, Refused) and program == "now":
                    raise
                Program.stop_all()
                left_out[figure] = f"{options.against}: {reason}" if isinstance(reason, Refused) else str(reason)
                print(f"left out: {reason}", file=sys.stderr)
                continue
            for program, result in results.items():
                for metric, value in result.items():
                    values[program].setdefault(name, {}).setdefault(setting, {}).setdefault(metric, []).append(value)
    return values, left_out


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(received, _):
    """Raises an exception that stops all programs, and ignores further signals until they have stopped."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + received)


NEEDS = "program:valgrind:valgrind program:strip:binutils"


def main():
    options = arguments()
    if options.needs:
        if "instructions" in options.only:
            print(NEEDS)
        return
    for number in ENDING:
        signal.signal(number, end)
    directory = tempfile.mkdtemp(prefix="apns-worker-bench-")
    try:
        bench = Bench(options, directory)
        subprocess.run(["scripts/make-certs", bench.certificates], check=True)
        values, left_out = measure(bench, options)
    except (Failed, OSError, subprocess.CalledProcessError) as failure:
        sys.exit(f"scripts/bench: {failure}")
    finally:
        Program.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    header = report.header(options, bench.counter_name)
    if not options.against:
        print(report.table(header, values["now"], left_out))
        return
    before, now = values["before"], values["now"]
    rows = compare.rows(before, now)
    print(compare.table(header, rows, {**left_out, **compare.absent(before, now)}))
    if not rows:
        sys.exit(f"scripts/bench: no figure could be compared with {options.against}")


if __name__ == "__main__":
    main()
