"""Starts programs, pins them to a core, watches and stops them."""

import os
import signal
import subprocess
import time


class Failed(Exception):
    pass


class Refused(Failed):
    """The failure of a program that does not know a flag, a setting or another thing that the measurement uses."""


# The exit statuses for a wrong flag and for a wrong setting.
REFUSALS = (64, 78)


class Unavailable(Exception):
    """A figure is omitted, because a program or a permission is missing."""


def await_true(condition, what, seconds=30.0, pause=0.01):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


class Program:
    """One process. Its output goes to the files NAME.out and NAME.err of the directory."""

    running = []
    started = 0

    def __init__(self, name, command, cores, directory, environment=None, counter=None):
        """`counter`: a PerfStat or a Callgrind, to count the program's instructions."""
        self.name = name
        self.pid_file = counter.pid_file if counter else None
        if counter:
            command = counter.command(command)
        Program.started += 1
        path = os.path.join(directory, f"{name}-{Program.started}")
        self.output, self.errors = path + ".out", path + ".err"
        # --pdeathsig ends the program with this process, even after kill -9. Both wrappers are replaced by the next program.
        pinned = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", ",".join(map(str, cores)), *map(str, command)]
        with open(self.output, "wb") as output, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                pinned, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=directory,
                env={**clean_environment(), **(environment or {})})
        self.pid = self.process.pid
        self.began = time.monotonic()
        self.usage = None
        Program.running.append(self)

    def said(self):
        with open(self.output, encoding="utf-8", errors="replace") as output:
            return output.read()

    def failed(self, what):
        with open(self.errors, encoding="utf-8", errors="replace") as errors:
            kind = Refused if self.process.returncode in REFUSALS else Failed
            return kind(f"{self.name}: {what}\n{errors.read()[-2000:]}")

    def cpu_us(self):
        """Returns the CPU time of all threads of the program so far, in microseconds."""
        # The identifier of another process' CPU clock on Linux; see clock_getcpuclockid(3).
        return time.clock_gettime_ns((~self.pid << 3) | 2) / 1000

    def memory_kib(self, field):
        """A value of /proc/PID/status: VmHWM is the peak of its memory, VmRSS the current size."""
        # ru_maxrss is not used, because it includes the memory of this process at the time of the start.
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise self.failed("is gone")

    def has_ended(self):
        if self.usage is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.usage = usage
                self.ended = time.monotonic()
                self.process.returncode = os.waitstatus_to_exitcode(status)
                Program.running.remove(self)
        return self.usage is not None

    def used_us(self):
        """Returns the total CPU time of the program, which must have ended."""
        return 1e6 * (self.usage.ru_utime + self.usage.ru_stime)

    def wait(self, seconds):
        try:
            await_true(self.has_ended, f"{self.name} ends", seconds, pause=0.002)
        except Failed as failure:
            self.process.kill()
            raise self.failed(str(failure)) from None
        if self.process.returncode != 0:
            raise self.failed(f"exit status {self.process.returncode}")

    def stop(self):
        if not self.has_ended():
            self.terminate()
            self.wait(40)

    def terminate(self):
        if not self.pid_file:
            self.process.send_signal(signal.SIGTERM)
            return
        with open(self.pid_file, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGTERM)

    @classmethod
    def stop_all(cls):
        for program in list(cls.running):
            program.process.kill()
            program.process.wait()
        cls.running.clear()


def clean_environment():
    """Returns the environment without the settings of the caller's own worker."""
    return {name: value for name, value in os.environ.items() if not name.startswith("APNS_WORKER_")}
