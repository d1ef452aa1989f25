"""Samples a process with perf, and counts the samples by library and by module of the program."""

import itertools
import os
import re
import shutil
import subprocess

from programs import Failed, Program, Unavailable, await_true

# Shared libraries, by the start of their names. Those of C are split further by symbol.
LIBRARIES = (
    ("[kernel", "kernel"), ("libcrypto.", "OpenSSL"), ("libssl.", "OpenSSL"), ("libnghttp2.", "nghttp2"),
    ("libhiredis.", "hiredis"), ("libc.", "C library"), ("libm.", "C library"), ("ld-linux", "C library"),
    ("[vdso]", "C library"),
)
OWN = ("APNS", "Redis", "PushJob", "PushQueue", "PushWorker", "TLS", "Sockets", "Telemetry")
ROWS = (
    "kernel", "OpenSSL", "nghttp2", "hiredis", "C library", "allocation", "reference counting", "Swift runtime",
    "Swift standard library", "NIO", *OWN, "other", "without a symbol")

ALLOCATION = re.compile(
    r"(__libc_|_int_|c)?(malloc|calloc|realloc|free|memalign|posix_memalign|aligned_alloc|malloc_usable_size)(@|\.|$)"
    r"|malloc_consolidate|unlink_chunk|sysmalloc|systrim|tcache_|_?swift_(slow)?(?i:alloc|dealloc)"
    r"|_swift_release_dealloc")
COUNTING = re.compile(
    r"_?swift_(nonatomic_)?(bridgeObject|unknownObject)?_?((?i:retain|release)|tryRetain)|.*RefCount|_?swift_(weak|unowned)"
    r"|_?swift_isUniquelyReferenced|_?swift_(setDeallocating|retainCount)")
RUNTIME = re.compile(r"_*swift|_Z\w*(5swift|7__swift)|_?dispatch_")
NIO = re.compile(r"_?C?NIO|c_nio_")
# A name with its length before it, as in Swift's mangled symbols.
NAMED = re.compile(r"(\d+)([A-Za-z_]\w*)")


def row_of(library, symbol):
    """Returns the row of a sample."""
    row = next((row for start, row in LIBRARIES if library.startswith(start)), None)
    if row and row != "C library":
        return row
    if ALLOCATION.match(symbol):
        return "allocation"
    if row:
        return row
    if symbol.startswith("0x"):
        return "without a symbol"
    if symbol.startswith(("$s", "$S")):
        return module_row(symbol[2:])
    if COUNTING.match(symbol):
        return "reference counting"
    if RUNTIME.match(symbol):
        return "Swift runtime"
    return "NIO" if NIO.match(symbol) else "other"


def module_row(mangled):
    """Returns the row of the first module in a mangled name, given without its prefix."""
    # S and s are the standard library and its types, except So, which is C.
    if mangled[0] in "sS" and not mangled.startswith("So"):
        return "Swift standard library"
    for found in NAMED.finditer(mangled):
        name = found[2][:int(found[1])]
        if name in OWN:
            return name
        if NIO.match(name):
            return "NIO"
        if mangled.startswith(found[0]):
            return "other"
    return "other"


class Perf:
    """perf record of a running process, from its creation to `stop`."""

    numbers = itertools.count()

    def __init__(self, bench, pid):
        if not shutil.which("perf"):
            raise Unavailable("perf is missing; it is in Debian's package linux-perf")
        path = os.path.join(bench.directory, f"perf-{next(Perf.numbers)}")
        self.data, fifos = path + ".data", (path + ".control", path + ".ack")
        self.pipes = []
        for fifo in fifos:
            os.mkfifo(fifo)
            # For reading and writing, so that it does not wait for perf.
            self.pipes.append(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
        # By the CPU's clock, because virtual machines often have no counters.
        self.program = Program(
            "perf", ["perf", "record", "--event", "cpu-clock", "--freq", 3999, "--delay", -1, "--no-buildid-cache",
                     "--control", "fifo:" + ",".join(fifos), "--output", self.data, "--pid", pid],
            bench.server_cores, bench.directory)
        self.order("enable")

    def order(self, command):
        os.write(self.pipes[0], command.encode() + b"\n")
        await_true(lambda: self.is_acknowledged() or self.program.has_ended(), f"perf answers to {command}")
        if self.program.has_ended():
            raise Unavailable(str(self.program.failed("cannot sample a process here")))

    def is_acknowledged(self):
        try:
            return bool(os.read(self.pipes[1], 100))
        except BlockingIOError:
            return False

    def pause(self):
        """Ends the sampling. The process can end after that, and perf with it."""
        self.order("disable")

    def shares(self):
        """Returns the percentage of samples in each row, and their number, after the end of the process."""
        self.program.wait(60)
        for pipe in self.pipes:
            os.close(pipe)
        # Debian's perf would otherwise ask the network for symbols.
        environment = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
        report = subprocess.run(
            ["perf", "report", "--stdio", "--input", self.data, "--no-children", "--no-demangle", "--percent-limit", "0",
             "--fields", "sample,dso,symbol", "--field-separator", "\t"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, env=environment)
        if report.returncode:
            raise Failed(f"perf report: exit status {report.returncode}\n{report.stderr[-2000:]}")
        return shares(report.stdout)


def shares(text):
    """Returns the same from the output of perf report."""
    counts = dict.fromkeys(ROWS, 0)
    for line in text.splitlines():
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) == 3 and columns[0].isdigit():
            # The symbol comes after the marks [k] or [.].
            counts[row_of(columns[1], columns[2].split("] ", 1)[-1])] += int(columns[0])
    total = sum(counts.values())
    if not total:
        raise Failed("perf took no sample")
    if not counts["kernel"]:
        raise Unavailable("perf may not sample the kernel; run this as root, or set kernel.perf_event_paranoid to 1")
    return {"samples": total, **{row: 100 * count / total for row, count in counts.items()}}
