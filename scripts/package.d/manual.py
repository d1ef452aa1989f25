"""Writes a program's manual pages, one for each command, from the help that the program prints as JSON.

    PROGRAM --experimental-dump-help | manual.py DIRECTORY RELEASE SECONDS

SECONDS since 1970 make the date of the pages.
"""
import json
import os
import re
import sys
import textwrap
import time

if len(sys.argv) != 4:
    sys.exit("usage: manual.py DIRECTORY RELEASE SECONDS < HELP.json")
directory, release, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
date = time.strftime("%Y-%m-%d", time.gmtime(seconds))


def roff(text):
    """Returns a text in ASCII, with all characters escaped that roff would interpret."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.splitlines())


def paragraphs(text):
    """Returns the lines of a text's paragraphs. A paragraph with indented lines is an example, which keeps its line breaks."""
    lines = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if re.search("^  |   ", paragraph, re.MULTILINE):
            lines += [".PP", ".nf", ".RS 4", roff(textwrap.dedent(paragraph)), ".RE", ".fi"]
        else:
            lines += [".PP", roff(paragraph)]
    return lines


def spelled(argument):
    """Returns an option's names with its value, or an argument's placeholder."""
    value = f" \\fI{roff(argument['valueName'])}\\fR" if argument["kind"] == "option" else ""
    if argument["kind"] == "positional":
        return f"\\fI{roff(argument.get('valueName', ''))}\\fR"
    names = [("\\-" if name["kind"] == "short" else "\\-\\-") + roff(name["name"]) for name in argument["names"]]
    return ", ".join(f"\\fB{name}\\fR" for name in names) + value


def described(argument):
    text = argument.get("abstract", "")
    if argument.get("discussion"):
        text += "\n" + argument["discussion"]
    if argument.get("defaultValue") and "default" not in text:
        text = f"{text} (default: {argument['defaultValue']})"
    return roff(" ".join(text.split()))


def synopsis(names, command):
    words = [f"\\fB{roff(' '.join(names))}\\fR"]
    arguments = [one for one in command.get("arguments", []) if one.get("shouldDisplay", True)]
    if any(one["kind"] != "positional" for one in arguments):
        words.append("[\\fIoptions\\fR]")
    for one in arguments:
        if one["kind"] == "positional":
            word = spelled(one) + ("..." if one.get("isRepeating") else "")
            words.append(f"[{word}]" if one.get("isOptional") else word)
    if command.get("subcommands"):
        words.append("\\fIcommand\\fR")
    return " ".join(words)


def page(names, command, parents):
    title = "-".join(names)
    lines = [f'.TH "{title.upper()}" 1 "{date}" "{names[0]} {release}" "User Commands"', ".nh", ".ad l", ".SH NAME",
             f"{roff(title)} \\- {roff(command.get('abstract', ''))}", ".SH SYNOPSIS", synopsis(names, command)]
    if command.get("discussion"):
        lines += [".SH DESCRIPTION"] + paragraphs(command["discussion"])
    arguments = [one for one in command.get("arguments", []) if one.get("shouldDisplay", True)]
    sections = {}
    for one in arguments:
        sections.setdefault(one.get("sectionTitle") or ("ARGUMENTS" if one["kind"] == "positional" else "OPTIONS"), []).append(one)
    for section, members in sections.items():
        lines.append(f'.SH "{roff(section.upper())}"')
        for one in members:
            lines += [".TP", spelled(one), described(one)]
    children = [one for one in command.get("subcommands", []) if one["commandName"] != "help" and one.get("shouldDisplay", True)]
    if children:
        lines.append(".SH COMMANDS")
        for one in children:
            lines += [".TP", f"\\fB{roff(title + '-' + one['commandName'])}\\fR(1)", roff(one.get("abstract", ""))]
    others = parents + ["-".join(names[:1])] if len(names) > 1 else []
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{roff(other)}\\fR(1)" for other in dict.fromkeys(others))]
    with open(os.path.join(directory, f"{title}.1"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    for one in children:
        page(names + [one["commandName"]], one, parents + [title])


root = json.load(sys.stdin)["command"]
page([root["commandName"]], root, [])
