"""What the library said last, in each thread.

A signal handler, or a __del__ that the garbage collector runs, may call it in the middle of another call: when that has failed, and
before its words were read. They are kept for it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

if TYPE_CHECKING:
    from ._library import Library


class _Said(threading.local):
    #: for each call under way what was said before it, None for the first
    before: List[Optional[bytes]]
    #: what was said before the last call that came in between, and by the end of it
    between: Optional[Tuple[bytes, bytes]] = None

    def __init__(self) -> None:
        self.before = []


_said = _Said()


def last(lib: "Library") -> bytes:
    """The words of the caller's own last call. Those at the end of a call in between are that one's, newer ones are its own again."""
    text: bytes = lib.last_error() or b""
    between = _said.between
    return between[0] if between is not None and between[1] == text else text


def depth() -> int:
    """How many calls of this thread are under way."""
    return len(_said.before)


def enter(lib: "Library") -> None:
    """A call begins."""
    said = _said
    said.before.append(last(lib) if said.before else None)
    said.between = None


def leave(lib: "Library") -> None:
    """It is over, and its words were read."""
    said = _said
    text = said.before.pop()
    if text is not None:
        said.between = text, lib.last_error() or b""


@contextlib.contextmanager
def call(lib: "Library") -> Iterator[None]:
    """One that enters no session."""
    enter(lib)
    try:
        yield
    finally:
        leave(lib)
