"""The library's last error text, in each thread.

A signal handler, or a __del__ that the garbage collector runs, may call the library in the middle of another call: after that has
failed, and before its text was read. So the text is kept for it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

if TYPE_CHECKING:
    from ._library import Library


class _Said(threading.local):
    #: for each call under way the text of the call that it interrupted, None for the first
    before: List[Optional[bytes]]
    #: the text before the last call that came in between, and the text at its end
    between: Optional[Tuple[bytes, bytes]] = None

    def __init__(self) -> None:
        self.before = []


_said = _Said()


def last(lib: "Library") -> bytes:
    """The text of the caller's own last call. The text at the end of a call in between is that call's; a newer one is the caller's."""
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
    """The call is over, and its text was read."""
    said = _said
    text = said.before.pop()
    if text is not None:
        said.between = text, lib.last_error() or b""


@contextlib.contextmanager
def call(lib: "Library") -> Iterator[None]:
    """A call that enters no session."""
    enter(lib)
    try:
        yield
    finally:
        leave(lib)
