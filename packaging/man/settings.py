"""kvpiped.toml.5, from the comments of packaging/kvpiped.toml."""

import re
from pathlib import Path

import roff

HERE = Path("packaging/kvpiped.toml")
_KEY = re.compile(r"^#?([a-z][a-z_0-9]*) = (.*)$")


def paragraph(lines):
    """Lines of a comment as roff; indented ones stay as they are."""
    out, text = [], []
    for line in lines + [""]:
        if line and not line.startswith("  "):
            text.append(line)
            continue
        if text:
            out += roff.fill(" ".join(text))
            text = []
        if line:
            out += roff.verbatim([line])
    return out


def entry(keys, comment):
    """Keys that one comment is about; those of a section may have theirs above them all."""
    heads = [f"\\fB{roff.escape(key)}\\fP = {roff.escape(value)}" for key, value in keys]
    if not comment:
        return [line for head in heads for line in (".PP", head)]
    return [".TP", heads[0], *(line for head in heads[1:] for line in (".TQ", head)), *paragraph(comment)]


def page(date, version):
    body = roff.name(["kvpiped.toml"], "configuration of kvpiped") + [".SH DESCRIPTION"]
    comment, keys, section = [], [], None

    def flush():
        nonlocal comment, keys
        if keys:
            body.extend(entry(keys, comment))
        elif comment:
            body.extend([".PP", *paragraph(comment)])
        comment, keys = [], []

    for line in HERE.read_text().split("\n"):
        if match := re.match(r"^\[(\w+)\]$", line):
            section, text, comment = match[1], comment, []
            flush()
            body.append(f".SH [{section}]")
            body.extend(paragraph(text))
        elif match := _KEY.match(line):
            if section is None:
                section = ""
                body.append(".SH KEYS")
            keys.append((f"{section}.{match[1]}" if section else match[1], match[2]))
        elif not line.rstrip("#").strip():
            flush()
        elif line.startswith("#"):
            if keys:
                flush()
            comment.append(re.sub("^ ", "", line[1:]))
    flush()
    body += [".SH FILES", ".TP", ".I /etc/kvpipe/kvpiped.toml", "Read unless another file is named."]
    body += roff.see_also([("kvpiped", 8), ("kvpipectl", 1)])
    return {"kvpiped.toml.5": roff.page("kvpiped.toml", 5, "File formats", date, version, body)}


def keys():
    """Every key of the sample, as the page names it."""
    found, section = [], ""
    for line in HERE.read_text().split("\n"):
        if match := re.match(r"^\[(\w+)\]$", line):
            section = match[1] + "."
        elif match := _KEY.match(line):
            found.append(section + match[1])
    return found
