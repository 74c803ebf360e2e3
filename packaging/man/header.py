"""Reads include/kvpipe.h: its opening comments, and its sections of comments and declarations."""

import re
from dataclasses import dataclass, field
from typing import List

_BANNER = re.compile(r"^/\* -{4} (?P<title>.*?) -{4,}")
_FUNCTION = re.compile(r"\b(kvpipe_\w+)\(")


@dataclass
class Item:
    """A comment and what it is about. code: lines; functions: the names that the code declares."""

    comment: List[str] = field(default_factory=list)
    code: List[str] = field(default_factory=list)

    @property
    def functions(self):
        if not self.code or not self.code[0].startswith("KVPIPE_API"):
            return []
        return [m[1] for line in self.code if line.startswith("KVPIPE_API") and (m := _FUNCTION.search(line))]


@dataclass
class Section:
    title: str
    comment: List[str]
    items: List[Item] = field(default_factory=list)

    @property
    def functions(self):
        return [name for item in self.items for name in item.functions]


def read(text):
    """(comments at the top, sections). The top is everything before the first declaration."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("#ifndef KVPIPE_H"))
    top = [comment for comment in _comments(lines[:start]) if "SPDX" not in comment[0]]
    sections, i = [], start
    while i < len(lines):
        match = _BANNER.match(lines[i])
        if not match:
            i += 1
            continue
        comment = []
        while "*/" not in lines[i]:
            i += 1
            comment.append(_bare(lines[i]))
        end = next((j for j in range(i + 1, len(lines)) if _BANNER.match(lines[j]) or lines[j].startswith("#define KVPIPE_OPTS")), len(lines))
        sections.append(Section(match["title"].split(";")[0], comment, _items(lines[i + 1:end])))
        i = end
    return top, sections


def _bare(line):
    """A line of a comment without its stars."""
    line = re.sub(r"\s*\*/\s*$", "", line)
    return re.sub(r"^\s*/?\*+ ?", "", line)


def _comments(lines):
    found, inside = [], None
    for line in lines:
        if inside is None and line.startswith("/*"):
            inside = []
        if inside is not None:
            inside.append(_bare(line))
            if "*/" in line:
                found.append([text for i, text in enumerate(inside) if text or 0 < i < len(inside) - 1])
                inside = None
    return found


def _items(lines):
    """Splits at blank lines and at comments that stand alone; a comment belongs to the code below it."""
    items, item, i = [], Item(), 0

    def close():
        nonlocal item
        if item.comment or item.code:
            items.append(item)
        item = Item()

    while i < len(lines):
        line = lines[i]
        if not line.strip():
            close()
        elif line.startswith("/*"):
            if item.code:
                close()
            item.comment.append(_bare(line))
            while "*/" not in lines[i]:
                i += 1
                item.comment.append(_bare(lines[i]))
        else:
            if item.code and line.startswith("KVPIPE_API") and not item.functions:
                close()  # functions after a type
            item.code.append(line)
            depth = line.count("{") - line.count("}")
            while depth > 0:
                i += 1
                item.code.append(lines[i])
                depth += lines[i].count("{") - lines[i].count("}")
        i += 1
    close()
    return items
