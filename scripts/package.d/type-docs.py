"""scripts/package.d/type-docs.py PAGE...: types the commands of documentation pages as a reader would: in the order of the page, a second
apart, in one shell per page, and without the hidden commands. Fails at the first command that ends with another status than the page says.
Redis must run on port 6379; it is emptied for each page."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SECONDS = 240


def blocks(text):
    """Yields (language, mark, lines) for each block. The mark is in the comment on the line before the block."""
    mark, block = None, None
    for line in text.splitlines():
        if block:
            if line.startswith("```"):
                yield block
                block = None
            else:
                block[2].append(line)
            continue
        comment = re.fullmatch("<!-- (run|not run|output|file): (.*) -->", line)
        if comment:
            mark = comment.groups() if comment[1] != "run" else mark
            continue
        if line.startswith("```"):
            block = (line[3:], mark, [])
        mark = None


def commands(lines):
    """Yields the commands of a console block, of one line or more."""
    command = None
    for line in lines:
        if command and (command.endswith("\\") or command.startswith("for ") and "\n  done" not in command):
            command += "\n" + line
        elif line.startswith("$ "):
            if command:
                yield command
            command = line[2:]
        elif command:
            yield command
            command = None
    if command:
        yield command


def script(page):
    """Returns the commands of a page as a shell script."""
    lines = ["set -u"]
    for language, mark, block in blocks(page.read_text()):
        kind, value = mark or (None, None)
        if kind == "not run":
            continue
        text = "\n".join(block) + "\n"
        if kind == "file" or language == "python":
            name = value if kind == "file" else "example.py"
            lines.append(f"printf %s {shlex.quote(text)} >{shlex.quote(name)}")
            if language != "python" or kind == "file":
                continue
            block, language = ["$ python3 example.py"], "console"
        if language != "console":
            continue
        for command in commands(block):
            status = re.search("# exit status ([0-9]+)", command)
            wanted = status[1] if status else "0"
            if "# until Ctrl-C" in command:
                command = "timeout --preserve-status --signal INT 2 " + command
                wanted = "0|130"
            lines.append(f"""
printf '$ %s\\n' {shlex.quote(command)}
eval {shlex.quote(command)}
status=$?
case $status in {wanted}) ;; *) echo "exit status $status of a command of {page.name}"; exit 1 ;; esac
sleep 1""")
    return "\n".join(lines) + "\nkill $(jobs -p) 2>/dev/null\nwait\nexit 0\n"


for name in sys.argv[1:]:
    page = pathlib.Path(name)
    subprocess.run(["redis-cli", "FLUSHALL"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as directory:
        text = script(page)
        assert text.count("\nstatus=$?") > 3, f"{name} has no commands"
        file = pathlib.Path(directory, ".script")
        file.write_text(text)
        print(f"== {page.name}", flush=True)
        try:
            ended = subprocess.run(["bash", str(file)], cwd=directory, stdin=subprocess.DEVNULL, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            sys.exit(f"type-docs.py: {page.name} takes longer than {SECONDS} s")
        if ended.returncode:
            sys.exit(f"type-docs.py: {page.name} failed")
print(f"{len(sys.argv) - 1} pages typed")
