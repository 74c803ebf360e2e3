"""kvpipe.3 and a page for each group of functions, from the header's own comments."""

import re
from pathlib import Path

import header
import roff

# The header's sections: the page of each, and what it is about. One that is not here is an error.
PAGES = {
    "sessions": ("kvpipe_connect", "open and close a session with the node's daemon"),
    "memory": ("kvpipe_mem_alloc", "memory that the daemon can reach"),
    "layout": ("kvpipe_set_layout", "how the KV cache lies in memory, and how far it is written"),
    "operations": ("kvpipe_offer", "offer and take blocks"),
    "completions": ("kvpipe_poll", "what became of operations, and when memory may be reused"),
    "tensors": ("kvpipe_dtype_name", "element types of tensors"),
    "pipes and lookup buffers": ("kvpipe_pipe_open", "tensors in order, and tensors that are found by their tokens"),
    "about": ("kvpipe_probe", "versions, limits and error texts"),
}
# These are told in kvpipe.3 itself.
IN_KVPIPE = ("limits", "errors and reasons")
TITLE = "C library"
HERE = Path("include/kvpipe.h")


def prose(comment):
    """A comment as roff: paragraphs, bullets, and indented lines as they are."""
    out, text, item = [], [], False

    def flush():
        nonlocal text
        if text:
            out.extend(roff.bullet(" ".join(text)) if item else [".PP", *roff.fill(" ".join(text))])
        text = []

    for line in comment:
        if re.match(r"\s*- ", line):
            flush()
            text, item = [re.sub(r"^\s*- ", "", line)], True
        elif not line.strip():
            flush()
            item = False
        elif not item and re.match(r" {2,}\S", line):
            flush()
            out.extend(roff.verbatim([line]))
        else:
            if item and not line.startswith("   ") and not line.startswith("    "):
                flush()
                item = False
            text.append(line.strip())
    flush()
    return out


def prototype(line):
    code = re.sub(r"\s*/\*.*", "", line).replace("KVPIPE_API ", "")
    return re.sub(r"\s+", " ", code).strip()


def declarations(item):
    """[(prototype, remark at its end)] of an item that declares functions."""
    found = []
    for line in item.code:
        remark = re.search(r"/\*\s*(.*?)\s*\*/", line)
        if line.startswith("KVPIPE_API"):
            found.append([prototype(line), remark[1] if remark else ""])
        else:
            found[-1][0] += " " + prototype(line)
            found[-1][1] += remark[1] if remark else ""
    return found


def describe(item):
    if not item.functions:
        return prose(item.comment) + ([".PP", *roff.verbatim(item.code)] if item.code else [])
    out = []
    for text, remark in declarations(item):
        out += [".PP", f"\\fB{roff.escape(text)}\\fP"]
        if remark:
            out += [".RS 4", *roff.fill(remark[0].upper() + remark[1:] + "."), ".RE"]
    if item.comment:
        out += [".RS 4", *prose(item.comment)[1:], ".RE"]
    return out


def group_page(section, date, version):
    """(name, text, names of all functions on it)"""
    name, what = PAGES[section.title]
    synopsis = [text for item in section.items if item.functions for text, _ in declarations(item)]
    body = [
        *roff.name(section.functions, what),
        ".SH SYNOPSIS", ".nf", ".B #include <kvpipe.h>", ".PP",
        *(f"\\fB{roff.escape(line)}\\fP" for line in synopsis), ".fi",
        ".SH DESCRIPTION", *prose(section.comment),
    ]
    for item in section.items:
        body += describe(item)
    body += roff.see_also([("kvpipe", 3)] + [(page, 3) for page, _ in PAGES.values() if page != name])
    return name, roff.page(name, 3, TITLE, date, version, body), section.functions


def overview(top, sections, date, version):
    body = roff.name(["kvpipe"], "hand KV cache blocks from one inference engine to another")
    body += [
        ".SH SYNOPSIS", ".nf", ".B #include <kvpipe.h>", ".PP", r"\fBcc app.c $(pkg\-config \-\-cflags \-\-libs kvpipe)\fP", ".fi",
        ".SH DESCRIPTION",
    ]
    for comment in top:
        if comment[0].startswith("kvpipe.h - "):
            comment = comment[1:]
        if comment[0].startswith("When the daemon is restarted"):
            body += [".SS Restarts of the daemon"]
        for part in re.split(r"\n(?=Conventions|Memory rules)", "\n".join(comment)):
            lines = part.split("\n")
            if lines[0].startswith(("Conventions", "Memory rules")):
                body += [".SS " + roff.escape(lines.pop(0))]
            body += prose(lines)
    body += [".SS Pages"]
    for section in sections:
        if section.title in PAGES:
            page, what = PAGES[section.title]
            body += [".TP", f".BR {roff.escape(page)} (3)", roff.inline(what)]
    for section in sections:
        if section.title in IN_KVPIPE:
            body += [f".SS {section.title.capitalize()}", *prose(section.comment)]
            for item in section.items:
                body += describe(item)
    body += [
        ".SH ENVIRONMENT", ".TP", ".B KVPIPE_SOCKET", "The daemon's socket, for sessions that name none.",
        ".SH FILES", ".TP", ".I /run/kvpipe/kvpiped.sock", "The socket of the node's daemon.",
    ]
    body += roff.see_also([("kvpiped", 8), ("kvpipectl", 1)])
    return roff.page("kvpipe", 3, TITLE, date, version, body)


def pages(date, version):
    """{file name: text}, and {file name of a link: file name of its page}."""
    top, sections = header.read(HERE.read_text())
    unknown = [s.title for s in sections if s.title not in PAGES and s.title not in IN_KVPIPE]
    if unknown:
        raise SystemExit(f"{HERE}: no page for its section {unknown[0]!r}: name one in packaging/man/library.py")
    texts, links = {"kvpipe.3": overview(top, sections, date, version)}, {}
    for section in sections:
        if section.title in PAGES:
            name, text, functions = group_page(section, date, version)
            texts[f"{name}.3"] = text
            links.update({f"{function}.3": f"{name}.3" for function in functions if function != name})
    return texts, links
