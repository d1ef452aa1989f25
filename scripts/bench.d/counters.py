"""Counts the instructions of a program in user space. Unlike times, they do not depend on the machine's load."""

import functools
import itertools
import os
import re
import shutil
import subprocess

from programs import Failed, Unavailable

NUMBERS = itertools.count()
EVENT = "instructions:u"


class PerfStat:
    """The processor's own counter, which many virtual machines lack."""

    name = "perf stat"
    # The numbers of notifications of the two runs, and of a quick measurement: multiples of the 1,000 tokens of a job.
    lengths, quick_lengths = (50_000, 150_000), (5000, 15_000)

    def __init__(self, bench):
        path = os.path.join(bench.directory, f"perf-stat-{next(NUMBERS)}")
        self.file, self.pid_file = path + ".csv", path + ".pid"

    def command(self, command):
        """Returns a command that runs `command` and counts its instructions. `pid_file` gets the process to send signals to."""
        return ["perf", "stat", "--field-separator", ",", "--event", EVENT, "--output", self.file, "--", "setpriv", "--pdeathsig",
                "KILL", "sh", "-c", 'echo $$ >"$0"; exec "$@"', self.pid_file, *command]

    def count(self):
        """Returns the number of instructions. The program must have ended."""
        with open(self.file, encoding="utf-8") as file:
            return perf_count(file.read())


class Callgrind:
    """Valgrind's simulation, which is about fifty times slower than the processor and works on any machine."""

    name = "callgrind"
    pid_file = None
    lengths, quick_lengths = (5000, 15_000), (1000, 3000)

    def __init__(self, bench):
        self.directory = bench.directory
        self.file = os.path.join(bench.directory, f"callgrind-{next(NUMBERS)}.out")

    def command(self, command):
        program, *rest = command
        stripped = without_debug_information(shutil.which(program), self.directory)
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.file}", stripped, *rest]

    def count(self):
        with open(self.file, encoding="utf-8", errors="replace") as file:
            return callgrind_count(file.read())


@functools.cache
def without_debug_information(program, directory):
    """Returns the path of a copy without debug information. Valgrind ends if it must read Swift's debug information."""
    copy = os.path.join(directory, f"{os.path.basename(program)}-{next(NUMBERS)}")
    subprocess.run(["strip", "--strip-debug", "-o", copy, program], check=True)
    return copy


@functools.cache
def counter_type():
    """Returns PerfStat if perf can count here, otherwise Callgrind."""
    reason = "perf is missing"
    if shutil.which("perf"):
        done = subprocess.run(
            ["perf", "stat", "--field-separator", ",", "--event", EVENT, "true"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False)
        try:
            perf_count(done.stderr)
            return PerfStat
        except Failed as failure:
            reason = str(failure)
    if shutil.which("valgrind") and shutil.which("strip"):
        return Callgrind
    raise Unavailable(f"{reason}, and valgrind or strip is missing; they are in Debian's packages valgrind and binutils")


def perf_count(text):
    """Returns the number of instructions in the output of `perf stat --field-separator ,`, which has a line per type of core."""
    counts = [line.split(",")[0] for line in text.splitlines() if "instructions" in line and "," in line]
    known = [int(count) for count in counts if count.isdigit()]
    if not known:
        raise Failed(f"perf counts no instructions here: {', '.join(counts) or text.strip()[-300:]}")
    return sum(known)


def callgrind_count(text):
    """Returns the number of instructions in callgrind's output file."""
    found = re.findall(r"^totals: (\d+)", text, re.MULTILINE)
    if len(found) != 1:
        raise Failed(f"callgrind's file has {len(found)} totals, not 1")
    return int(found[0])
