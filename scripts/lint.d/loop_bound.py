"""Finds Swift types that belong to an event loop, and may be held by any thread, but are not LoopBound.

    loop_bound.py FILE...

Prints each type with its place. The exit status is 1 if there is one.
"""

import pathlib
import re
import sys

# A class or struct: its indentation, name, and conformances; then, because types are nested, a look ahead at its body.
TYPE = re.compile(
    r"^( *)(?:(?:package|public|private|fileprivate|final) )*(?:class|struct) (\w+)[^{]*?: ([^{]*)\{(?=(.*?)\n\1\})",
    re.DOTALL | re.MULTILINE,
)
# A stored property that holds an object of NIO which belongs to an event loop.
PROPERTY = r"(?:(?:package|private|private\(set\)|weak) )*(?:let|var) \w+"
OBJECT = r"[(\[]*(?:any )?(?:Channel|ChannelHandlerContext|EventLoop|\w*EventLoopGroup|NIOLoopBound(?:Box)?)\b"

status = 0
for path in map(pathlib.Path, sys.argv[1:]):
    text = path.read_text()
    for match in TYPE.finditer(text):
        indentation, name, conformances, body = match.groups()
        property = re.search(rf"^{indentation}    {PROPERTY}(?:: | = ){OBJECT}[^{{\n]*$", body, re.MULTILINE)
        # The sources synchronize by an event loop only; in a test, a type may also have a single thread.
        if not property and path.parts[0] == "Sources" and "@unchecked" in conformances:
            property = re.search(rf"^{indentation}    {PROPERTY.replace('let|', '')}\b[^{{\n]*$", body, re.MULTILINE)
        if property and re.search(r"\b(?:Sendable|Service)\b", conformances) and "LoopBound" not in conformances:
            line = text.count("\n", 0, match.start()) + 1
            print(f"{path}:{line}: {name} must be LoopBound because of `{property.group().strip()}`")
            status = 1
sys.exit(status)
