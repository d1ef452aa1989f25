"""Tests of scripts/bench.d with fixed measurements: the comparison of two commits, and the parsing of counters.

They start no server. Run them with `scripts/test e2e BenchScript`, or python3 -B -m unittest discover Tests/BenchScript.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/bench.d"))
import bench
import compare
import counters
import report
import workload
from programs import Failed, Program, Refused, Unavailable, await_true
from resp import calls


def rows_by_place(rows):
    return {(row["figure"], row["setting"], row["metric"]): row for row in rows}


class Comparison(unittest.TestCase):
    before = {
        "worker": {
            "at once": {"cpu_us": [4.0, 8.0, 4.0], "rate": [100_000, 50_000, 100_000], "own": [400, 400, 400]},
            "delayed": {"cpu_us": [7.0, 7.0, 7.0]},
        },
        "limit": {"at once": {"cpu_us": [4.0, 4.0, 4.0]}},
        "large.6.7 MB": {"": {"of_limit": [0.5, 0.5, 0.5], "claims": [14, 14, 14]}},
        "trickle.one queue": {"": {"redis_commands": [20.0, 20.0, 20.0]}},
    }
    now = {
        "worker": {
            # Each round at another speed of the machine: all are a tenth more.
            "at once": {"cpu_us": [4.4, 8.8, 4.4], "rate": [90_000, 50_000, 110_000], "own": [400, 400, 400]},
            "delayed": {"cpu_us": [7.0, 8.4, 7.7]},
        },
        "limit": {"at once": {"cpu_us": [3.6, 3.6, 3.6]}},
        "large.6.7 MB": {"": {"of_limit": [0.75, 0.75, 0.75], "claims": [15, 15, 15]}},
        "trickle.one queue": {"": {"redis_commands": [20.0, 20.0, 20.0], "redis_reads": [2.0, 2.0, 2.0]}},
        "instructions.worker": {"": {"instructions": [27_000.0, 27_000.0, 27_000.0]}},
    }

    def setUp(self):
        self.rows = rows_by_place(compare.rows(self.before, self.now))

    def test_ratios_are_of_the_same_round(self):
        row = self.rows["worker", "at once", "cpu_us"]
        self.assertEqual([round(row[name], 9) for name in ("before", "now", "ratio", "least", "most")], [4.0, 4.4, 1.1, 1.1, 1.1])
        self.assertTrue(row["worse"])

    def test_a_change_within_the_spread_is_not_worse(self):
        row = self.rows["worker", "delayed", "cpu_us"]
        self.assertEqual(round(row["ratio"], 9), 1.1)
        self.assertFalse(row["worse"])

    def test_more_per_second_is_better(self):
        def is_worse(*values):
            return compare.compared([100, 100, 100], values, True)["worse"]
        self.assertTrue(is_worse(80, 80, 81))
        self.assertFalse(is_worse(120, 120, 121))
        self.assertFalse(self.rows["worker", "at once", "rate"]["worse"])

    def test_less_is_better_for_costs(self):
        self.assertFalse(self.rows["limit", "at once", "cpu_us"]["worse"])
        self.assertTrue(self.rows["large 6.7 MB", "", "of_limit"]["worse"])

    def test_only_metrics_of_cost_are_compared(self):
        self.assertEqual(set(self.rows), {
            ("worker", "at once", "cpu_us"), ("worker", "at once", "rate"), ("worker", "delayed", "cpu_us"),
            ("limit", "at once", "cpu_us"), ("large 6.7 MB", "", "of_limit"), ("trickle one queue", "", "redis_commands")})

    def test_metrics_that_only_one_program_has_are_named(self):
        self.assertEqual(compare.absent(self.before, self.now), {
            "trickle one queue, Redis reads": "the earlier program does not report it",
            "instructions worker, instructions": "the earlier program does not report it"})

    def test_rounds_must_match(self):
        with self.assertRaises(ValueError):
            compare.compared([1, 2], [1], False)

    def test_the_table(self):
        rows = compare.rows(self.before, self.now)
        lines = compare.table("machine", rows, {"lookup": "abc: the worker refuses it:\nmore"}).splitlines()
        self.assertEqual(lines, [
            "machine", "",
            "figure                        answers  metric                   before         now   ratio  least–most",
            "worker                        at once  CPU µs                     4.00        4.40   1.100  1.100–1.100  WORSE",
            "                                       per second              100,000      90,000   1.000  0.900–1.100",
            "worker                        delayed  CPU µs                     7.00        7.70   1.100  1.000–1.200",
            "limit                         at once  CPU µs                     4.00        3.60   0.900  0.900–0.900",
            "large 6.7 MB                           claim × limit              0.50        0.75   1.500  1.500–1.500  WORSE",
            "trickle one queue                      Redis commands            20.00       20.00   1.000  1.000–1.000",
            "lookup                        left out: abc: the worker refuses it", "",
            "2 of 6 worse by more than the spread of the rounds",
        ])


class Rounds(unittest.TestCase):
    """The order of measurements, and the figures that are left out."""

    def measure(self, measurements, against="abc", rounds=2):
        fake = argparse.Namespace(bin="new", bin_against="old", measured="new", plan=lambda _: [
            (name, "at once", measurement) for name, measurement in measurements.items()])
        options = argparse.Namespace(against=against, rounds=rounds, only=set(measurements))
        with contextlib.redirect_stderr(io.StringIO()):
            return bench.measure(fake, options)

    def test_programs_alternate(self):
        order = []

        def worker(fake, _):
            order.append(fake.measured)
            return {"cpu_us": len(order)}

        values, left_out = self.measure({"worker": worker}, rounds=3)
        self.assertEqual(order, ["old", "new", "new", "old", "old", "new"])
        self.assertEqual(values, {
            "before": {"worker": {"at once": {"cpu_us": [1, 4, 5]}}}, "now": {"worker": {"at once": {"cpu_us": [2, 3, 6]}}}})
        self.assertEqual(left_out, {})

    def test_without_another_commit_only_this_one_is_measured(self):
        values, _ = self.measure({"worker": lambda fake, _: {"cpu_us": 1 if fake.measured == "new" else 2}}, against=None)
        self.assertEqual(values, {"now": {"worker": {"at once": {"cpu_us": [1, 1]}}}})

    def test_a_figure_that_the_earlier_program_refuses_is_left_out(self):
        def refused(fake, _):
            if fake.measured == "old":
                raise Refused("apns-worker: unknown setting")
            return {"cpu_us": 1}

        values, left_out = self.measure({"lookup": refused, "worker": lambda *_: {"cpu_us": 1}})
        self.assertEqual(left_out, {"lookup": "abc: apns-worker: unknown setting"})
        self.assertEqual(values["now"], {"worker": {"at once": {"cpu_us": [1, 1]}}})

    def test_a_refusal_of_this_commit_and_any_other_failure_end_the_run(self):
        for program, error in (("new", Refused), ("new", Failed), ("old", Failed)):
            def failing(fake, _, program=program, error=error):
                if fake.measured == program:
                    raise error("no")
                return {"cpu_us": 1}

            with self.subTest(program=program, error=error), self.assertRaises(error):
                self.measure({"worker": failing})

    def test_a_figure_without_its_program_is_left_out(self):
        def unavailable(*_):
            raise Unavailable("perf is missing")

        values, left_out = self.measure({"instructions.worker": unavailable})
        self.assertEqual((values, left_out), ({"now": {}, "before": {}}, {"instructions": "perf is missing"}))


class Options(unittest.TestCase):
    def parse(self, *arguments):
        with mock.patch.object(sys, "argv", ["bench.py", "--bin", "new", *arguments]), \
                contextlib.redirect_stderr(io.StringIO()):
            return bench.arguments()

    def test_against_selects_the_figures_that_it_compares(self):
        only = self.parse("--against", "abc", "--bin-against", "old").only
        self.assertEqual(set(bench.FIGURES) - only, {"limit"})

    def test_against_refuses_what_it_cannot_do(self):
        for wrong in (["--only", "worker,limit"], ["--rounds", "1"]):
            with self.subTest(wrong=wrong), self.assertRaises(SystemExit):
                self.parse("--against", "abc", "--bin-against", "old", *wrong)
        with self.assertRaises(SystemExit):
            self.parse("--against", "abc")


class Counters(unittest.TestCase):
    def test_perf(self):
        text = "# started on Sat Nov 28\n\n123456789,,instructions:u,50012345,100.00,,\n"
        self.assertEqual(counters.perf_count(text), 123_456_789)
        hybrid = "5,,cpu_atom/instructions:u/,1,1.00,,\n7,,cpu_core/instructions:u/,9,99.00,,\n"
        self.assertEqual(counters.perf_count(hybrid), 12)
        unused = "<not counted>,,cpu_atom/instructions:u/,0,0.00,,\n7,,cpu_core/instructions:u/,9,100.00,,\n"
        self.assertEqual(counters.perf_count(unused), 7)

    def test_perf_without_a_counter(self):
        with self.assertRaisesRegex(Failed, "<not supported>"):
            counters.perf_count("<not supported>,,instructions:u,0,100.00,,\n")
        with self.assertRaisesRegex(Failed, "No permission"):
            counters.perf_count("Error:\nNo permission to enable the event.\n")

    def test_callgrind(self):
        text = "version: 1\ncreator: callgrind-3.19.0\nevents: Ir\nsummary: 98765\n\nfn=(1) main\n16 3\n\ntotals: 98765\n"
        self.assertEqual(counters.callgrind_count(text), 98_765)
        with self.assertRaises(Failed):
            counters.callgrind_count("version: 1\nevents: Ir\n")

    def test_calls_of_commands(self):
        self.assertEqual(calls({
            "cmdstat_rpush": "calls=960,usec=2134,usec_per_call=2.22,rejected_calls=0,failed_calls=0",
            "cmdstat_config|get": "calls=2,usec=10,usec_per_call=5.00,rejected_calls=0,failed_calls=0"}), 962)


class Programs(unittest.TestCase):
    def fails(self, command):
        with tempfile.TemporaryDirectory() as directory:
            program = Program("example", command, sorted(os.sched_getaffinity(0))[:1], directory)
            with self.assertRaises(Failed) as failure:
                program.wait(60)
            return failure.exception

    def test_wrong_flags_and_settings_are_refusals(self):
        self.assertIsInstance(self.fails(["sh", "-c", "echo unknown option >&2; exit 64"]), Refused)
        self.assertIsInstance(self.fails(["sh", "-c", "exit 78"]), Refused)
        self.assertNotIsInstance(self.fails(["sh", "-c", "exit 1"]), Refused)

    def test_the_counted_program_is_stopped_not_its_counter(self):
        with tempfile.TemporaryDirectory() as directory:
            bench_like = argparse.Namespace(directory=directory)
            counter = counters.PerfStat(bench_like)
            # Runs the program as a child, as perf does, and ignores the signal, as perf does.
            wrapper = ["sh", "-c", 'trap "" TERM; shift; "$@" & wait $!', "sh"]
            real = counter.command
            counter.command = lambda command: [*wrapper, *real(command)[real(command).index("--"):]]
            ended = os.path.join(directory, "ended")
            # A shell cannot trap a signal that was ignored when it started.
            program = Program(
                "example", [sys.executable, "-c", EXAMPLE, ended], sorted(os.sched_getaffinity(0))[:1], directory, counter=counter)
            await_true(lambda: "ready" in program.said(), "the program is ready")
            program.stop()
            self.assertTrue(os.path.exists(ended))


EXAMPLE = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], "w").close(), sys.exit(0)))
print("ready", flush=True)
while True: signal.pause()
"""


class Report(unittest.TestCase):
    values = {
        "limit": {"at once": {"cpu_us": [4.0, 4.0], "rate": [100_000, 100_000]}},
        "worker": {"at once": {"cpu_us": [4.0, 4.4], "rate": [100_000, 90_000], "peak_kib": [30_720, 30_720],
                               "redis_cpu_us": [1.5, 1.5], "redis_trips_per_256_jobs": [1.2, 1.2]}},
        "trickle.one queue": {"": {"cpu_us": [100.0, 200.0], "redis_cpu_us": [50.0, 60.0], "redis_commands": [20.0, 20.0],
                                   "redis_reads": [2.0, 2.0]}},
        "trickle.sixteen queues": {"": {"cpu_us": [140.0, 280.0], "redis_cpu_us": [80.0, 96.0], "redis_commands": [30.0, 30.0],
                                        "redis_reads": [4.0, 4.0]}},
        "instructions.limit": {"": {"instructions": [22_000.0]}},
        "instructions.worker": {"": {"instructions": [27_100.0]}},
    }

    def test_the_table_has_costs_trickles_instructions_and_goals(self):
        options = argparse.Namespace(rounds=2, quick=False)
        text = report.table(report.header(options, "callgrind"), self.values, {"large": "perf is missing"})
        self.assertRegex(text, r"^.+, \d+ cores, .+; median of 2 rounds \(least–most\); instructions by callgrind\n")
        for line in (
                "limit                   at once  4.00 (4.00–4.00)          100,000",
                "worker                  at once  4.20 (4.00–4.40)           95,000      30.0      1.50       1.20",
                "instructions, limit              22,000 (22,000–22,000) per notification",
                "instructions, worker             27,100 (27,100–27,100) per notification",
                "trickle, sixteen queues          210 (140–280) µs per job, Redis 88 (80–96) µs, 30.00 commands and 4.00 reads",
                "large                   left out: perf is missing",
                "worker (at once): at most 1.0 × limit                         1.05 × limit            MISSED",
                "worker (at once): Redis takes at most 2.0 µs for a job        1.5 µs                  met",
                "trickle: 16 queues at most 1.5 × Redis' CPU of one            1.6 × one queue         MISSED",
                "trickle: 16 queues at most 1.5 × the worker's CPU of one      1.4 × one queue         met",
                "memory: under 32 MiB with one lane                            30 MiB                  met"):
            with self.subTest(line=line):
                self.assertIn(line, text.splitlines())


class Jobs(unittest.TestCase):
    def test_a_job_is_complete_and_has_its_own_token(self):
        queue = workload.Queue(None, name="trickle-1")
        jobs = [json.loads(queue.job(number)) for number in (1, 2)]
        self.assertEqual([job["id"] for job in jobs], ["job-1", "job-2"])
        for job in jobs:
            self.assertRegex(job["token"], r"^[0-9a-f]{64}$")
        self.assertNotEqual(jobs[0]["token"], jobs[1]["token"])
        self.assertEqual(queue.prefix, "push:{trickle-1}:")


if __name__ == "__main__":
    unittest.main()
