"""Finds the phrases of `phrases` in documentation, the string literals of Swift sources, titles of tests, deployment files, and
the comments and messages of scripts.

    phrases.py FILE...

Prints each hit with its place and the replacement. The exit status is 1 if there is one.
"""

import pathlib
import re
import sys

RULES = [
    (re.compile(pattern, re.IGNORECASE if pattern.islower() or "\\b" in pattern else 0), instead)
    for pattern, instead in (
        line.rstrip("\n").split("\t")
        for line in (pathlib.Path(__file__).parent / "phrases").open()
        if not line.startswith("#")
    )
]

# A comment, a string of several lines, or a string of one line.
SWIFT = re.compile(r'//[^\n]*|/\*.*?\*/|#*"""\n(.*?)"""#*|"((?:\\.|[^"\\\n])*)"', re.DOTALL)

# The title of a test or of a suite.
TITLE = re.compile(r'@(?:Test|Suite)\(\s*#?"((?:\\.|[^"\\])*)"')

# A comment, a docstring or a message of a script.
SCRIPT = re.compile(r'((?:^|\s)#(?!!).*|""".*|\b(?:fail|note|print|printf) .*)')


def texts(path):
    """The pieces of a file that users read, each with its line."""
    text = path.read_text()
    if path.suffix == ".swift" and path.parts[0] == "Tests":
        for match in TITLE.finditer(text):
            yield text.count("\n", 0, match.start(1)) + 1, match.group(1)
    elif path.suffix == ".swift":
        for match in SWIFT.finditer(text):
            literal = match.group(1) if match.group(1) is not None else match.group(2)
            # A word alone is a name.
            if literal and " " in literal:
                start = match.start(1) if match.group(1) is not None else match.start(2)
                first = text.count("\n", 0, start) + 1
                for number, line in enumerate(literal.split("\n"), first):
                    yield number, re.sub(r"\\\([^()]*(\([^()]*\)[^()]*)*\)", "x", line)
    elif path.parts[0] == "scripts":
        for number, line in enumerate(text.split("\n"), 1):
            if match := SCRIPT.search(line):
                yield number, match.group(1)
    elif path.suffix == ".json":
        for number, line in enumerate(text.split("\n"), 1):
            if match := re.search(r'"(?:title|description|legendFormat)": "(.*)"', line):
                yield number, match.group(1)
    else:
        is_code = False
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("```"):
                is_code = not is_code
            elif not is_code and not line.startswith("<!--"):
                # Code, and the targets of links, are not prose.
                yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "x", line)


def main():
    hits = 0
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        for number, text in texts(path):
            for rule, instead in RULES:
                if match := rule.search(text):
                    hits += 1
                    print(f"{name}:{number}: avoid '{match.group(0).strip()}'; write: {instead}: {text.strip()[:110]}")
    return 1 if hits else 0


sys.exit(main())
