"""Asking a daemon for something without waiting for it. One that stands still leaves the submission queue full, and then the library
waits for room, 100 ms in each call; so the next calls are not even made."""

from __future__ import annotations

import functools
import time
from typing import Any, Callable

from .. import Busy
from .compat import logger
from .guard import ask

#: seconds for which nothing is asked of a daemon whose queue was full; the first call after that finds out whether it still is
_AGAIN = 3.0


class Submissions:
    """Those of one session. Called by the engine's thread alone."""

    def __init__(self) -> None:
        self._until = float("-inf")
        self._said = False

    @property
    def stopped(self) -> bool:
        """Whether the daemon counts as one that stands still."""
        return time.monotonic() < self._until

    def make(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What the call returns. Raises its Error; Busy, without making the call, while stopped."""
        if self.stopped:
            raise Busy("the daemon stands still: nothing is asked of it for a moment")
        try:
            made = call(*args, **options)
        except Busy as error:
            self._until = time.monotonic() + _AGAIN
            if not self._said:
                logger.warning("kvpipe: the daemon stands still: prompts are computed here until it goes on: %s", error)
            self._said = True
            raise
        if self._said:
            logger.info("kvpipe: the daemon goes on")
        self._said = False
        return made

    def ask(self, end: Callable[..., Any]) -> bool:
        """Asks for an operation's end, or its seal. False: refused, as when the operation is over already."""
        return ask(functools.partial(self.make, end))
