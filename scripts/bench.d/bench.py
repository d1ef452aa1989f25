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
import plot
import report
from programs import Failed, Program, Refused, Unavailable
from servers import SERVERS

FIGURES = (
    "limit", "worker", "go", "python", "gateway", "lookup", "fanout", "lookup_fanout", "encode", "decode", "claim", "settle",
    "large", "latency", "scale", "trickle", "http", "idle", "instructions", "profile")
MICRO = {"encode", "decode", "claim", "settle"}
# The figures that --against cannot compare: those of other programs, and shares.
NOT_COMPARED = {"limit", "go", "python", "profile"}


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench", allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""figures:
  limit    h2load with the same headers and body: CPU of the bare request
  worker   apns-worker from Redis to settlement, one lane
  go       a consumer of the same jobs in Go with x/net/http2 and redigo: no leases, no retries, no settlement
  python   the same in Python with aioapns and redis-py
  gateway  worker through the simulator's binary gateway
  lookup   worker with a million invalid tokens in Redis, none of them a job's, once it has read them
  fanout   worker with 1,000 tokens per job
  lookup_fanout   the same with a million invalid tokens
  encode, decode, claim, settle   the hot parts one by one
  large    the time for which a claim and a settlement block Redis, with jobs of up to 6.7 MB
  latency  from RPUSH to the server at 1,000 jobs per second
  scale    worker at backlogs of 1,000 to 2,000,000; 2 lanes; 2 and 4 processes
  trickle  three jobs per second on each of sixteen queues, and as many on one queue
  http     producers that post single jobs, and 100 per request, to apns-worker web with 16 connections, until Redis has them
  idle     a worker without jobs
  instructions   of limit, worker and fanout in user space per notification: by `perf stat`, or by callgrind without permission
  profile  shares of libraries and modules in the worker's CPU time, sampled with perf; one token and 1,000 per job
Most are measured twice: with a server that answers at once, and with one that answers after 20±5 ms, out of order. The parts,
gateway, large, trickle, http, idle, instructions and profile are measured once.

--against COMMIT builds the programs of COMMIT in .build-against with this checkout's versions of packages, measures them and
this checkout's in alternation, and prints one table: each figure before and now, and the ratio, which is the median of the
rounds' ratios. WORSE marks a change for the worse that exceeds the spread of the rounds' ratios. The exit status is 0 in any
case, unless a measurement fails. Figures that the programs of COMMIT cannot do are left out, and so are limit, go, python
and profile.

servers:
  simulator   apns-simulator, which reads the body and checks each request as APNs does
  nginx       answers 200 when it has the headers, before it has read the body; at once only, without latency
  nginx-body  nginx with its echo module: reads the whole body, then answers 200 with the apns-id; the same limits""")
    parser.add_argument("--bin", help=argparse.SUPPRESS)
    parser.add_argument("--bin-against", help=argparse.SUPPRESS)
    parser.add_argument("--against", metavar="COMMIT", help="compare with the programs of another commit")
    # Prints what this measurement needs in addition, as arguments of `need` in scripts/lib.sh: one line per figure or server.
    parser.add_argument("--needs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", metavar="FILE", help="write all measurements as JSON")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the costs")
    parser.add_argument("--server", choices=tuple(SERVERS), default="simulator", help="see below (default: simulator)")
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
    for path in (options.json, options.plot):
        if path and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            parser.error(f"{path}: its directory does not exist")
    return options


def check_against(parser, options, figure_names):
    if others := options.only - set(figure_names):
        parser.error(f"--against cannot compare {', '.join(sorted(others))}; it compares {', '.join(figure_names)}")
    if options.rounds < 2:
        parser.error("--against needs at least 2 rounds, because one has no spread")
    if options.plot:
        parser.error("--against cannot be combined with --plot")
    if not (options.bin_against or options.needs):
        parser.error("--bin-against is required; scripts/bench gives it")


class Bench:
    """The settings that all measurements share: paths, numbers and cores."""

    key_id, team_id = "ABC123DEFG", "TEAM123456"

    def __init__(self, options, directory):
        self.server = options.server
        # The directory of the simulator and the other tools, and that of the programs that are measured.
        self.bin = self.measured = os.path.abspath(options.bin)
        self.bin_against = os.path.abspath(options.bin_against) if options.against else None
        self.is_quick = options.quick
        # The name of the program that counts instructions, once it has.
        self.counter_name = None
        self.directory = directory
        self.certificates = os.path.join(directory, "certificates")
        self.key = os.path.join(self.certificates, f"AuthKey_{self.key_id}.p8")
        self.job = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.json")
        # A worker's start and end take 20 ms of CPU: less than 1 % of so many notifications. Each costs about twice as much
        # when answers are late.
        self.notifications = {"at once": 500_000, "delayed": 250_000}
        if options.quick:
            self.notifications = {"at once": 20_000, "delayed": 20_000}
        # Consumers are slower, and their start is not counted.
        self.consumer_notifications = {"go": 20_000, "python": 2000} if options.quick else {"go": 100_000, "python": 20_000}
        self.latency_seconds = 2 if options.quick else 20
        self.idle_seconds = 3 if options.quick else 30
        self.trickle_seconds = 3 if options.quick else 20
        self.backlogs = (1000, 10_000, 100_000) if options.quick else (1000, 100_000, 2_000_000)
        # The number of measurements at each backlog, and the notifications of each.
        self.slices = {"at once": (2, 5000), "delayed": (2, 5000)} if options.quick else {
            "at once": (6, 60_000), "delayed": (6, 15_000)}
        # The bytes of each backlog of large jobs.
        self.large_backlog = 20_000_000 if options.quick else 100_000_000
        self.cores = sorted(os.sched_getaffinity(0))
        self.server_cores = self.cores[:1]

    def client_cores(self, wanted):
        """Returns the cores of the workers: the last ones, if possible without the core of the servers."""
        free = self.cores[1:] or self.cores
        return free[-min(wanted, len(free)):]

    def plan(self, only):
        """Returns the measurements of one round, as (name, setting, measurement)."""
        settings = ("at once", "delayed") if self.server == "simulator" else ("at once",)
        plan = []
        for setting in settings:
            for name in ("limit", "worker", "go", "python", "gateway", "lookup", "fanout", "lookup_fanout"):
                # The gateway sends no answers, so they cannot be late.
                if name in only and (name != "gateway" or setting == "at once"):
                    plan.append((name, setting, getattr(figures, name)))
        if only & MICRO:
            plan.append(("micro", "", figures.micro))
        if "large" in only:
            plan += [(f"large.{name}", "", with_mix(mix)) for name, mix in figures.LARGE.items()]
        # nginx does not record when a notification arrived.
        if "latency" in only and self.server == "simulator":
            plan += [("latency", setting, figures.latency) for setting in settings]
        if "scale" in only:
            for setting in settings:
                plan += self.scale(setting)
        if "trickle" in only:
            plan += [(f"trickle.{name}", "", with_queues(number)) for name, number in figures.TRICKLE.items()]
        if "http" in only:
            plan += [(f"http.{name}", "", with_producers(*numbers)) for name, numbers in figures.HTTP.items()]
        if "idle" in only:
            plan.append(("idle", "", figures.idle))
        if "instructions" in only:
            names = ("worker", "fanout") if self.bin_against else ("limit", "worker", "fanout")
            plan += [(f"instructions.{name}", "", with_counter(name)) for name in names]
        if "profile" in only:
            plan += [("profile.one token", "", with_tokens(1)), ("profile.1,000 tokens", "", with_tokens(1000))]
        return plan

    def scale(self, setting):
        yield "scale.backlogs", setting, figures.backlogs
        for lanes in (1, 2):
            yield f"scale.lanes {lanes}", setting, with_options(lanes=lanes)
        for processes in (2, 4):
            yield f"scale.processes {processes}", setting, with_options(processes=processes)


def with_options(**options):
    return lambda bench, setting: figures.work(bench, setting, **options)


def with_queues(number):
    return lambda bench, _: figures.trickle(bench, number)


def with_producers(*numbers):
    return lambda bench, _: figures.http(bench, *numbers)


def with_counter(name):
    return lambda bench, _: figures.instructions(bench, name)


def with_tokens(tokens):
    return lambda bench, _: figures.profile(bench, tokens)


def with_mix(mix):
    return lambda bench, _: figures.large(bench, mix)


def measure(bench, options):
    """Runs all rounds, each with the programs of the other commit too, if there is one.

    Returns {"now" or "before": {name: {setting: {metric: [value of each round]}}}}, and {name: reason} of omitted figures.
    """
    programs = {"now": bench.bin}
    if options.against:
        programs["before"] = bench.bin_against
    values, left_out = {program: {} for program in programs}, {}
    plan = bench.plan(options.only)
    for number in range(options.rounds):
        # In turn, so that the drift of the machine's speed favours neither.
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
    """Raises an exception that stops all programs. A second signal must not interrupt that."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + received)


NEEDS = {
    "nginx-body": "package:libnginx-mod-http-echo:libnginx-mod-http-echo",
    "go": "program:go:golang-go package:golang-golang-x-net-dev:golang-golang-x-net-dev "
          "package:golang-github-gomodule-redigo-dev:golang-github-gomodule-redigo-dev",
    "python": "package:python3-venv:python3-venv",
    "profile": "program:perf:linux-perf",
    "instructions": "program:valgrind:valgrind program:strip:binutils",
}


def main():
    options = arguments()
    if options.needs:
        print("\n".join(needs for name, needs in NEEDS.items() if name in options.only | {options.server}))
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
    page = report.page(values["now"], left_out, bench, options)
    if options.against:
        before, now = values["before"], values["now"]
        rows = compare.rows(before, now, options.only)
        page["against"] = {
            "commit": options.against, "figures": report.figures_of(before, options.only),
            "compared": [compare.as_json(row) for row in rows]}
        print(compare.table(report.header(page), rows, {**left_out, **compare.absent(before, now)}))
    else:
        print(report.table(page))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(report.as_json(page) + "\n")
    if options.plot:
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(plot.svg(page))
    if options.against and not page["against"]["compared"]:
        sys.exit(f"scripts/bench: no figure could be compared with {options.against}")


if __name__ == "__main__":
    main()
