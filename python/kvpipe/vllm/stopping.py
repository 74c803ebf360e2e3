"""Which operations were asked to end."""

from __future__ import annotations

from typing import Any, Mapping, Set

from .. import Take
from .submissions import Submissions


class Stopping:
    """Of those that run, by tag: each has its ``operation``. Called by the engine's thread alone."""

    def __init__(self, running: Mapping[int, Any], submissions: Submissions) -> None:
        self._running, self._submissions = running, submissions
        self._asked: Set[int] = set()
        self._unasked: Set[int] = set()  # those that are to end, while the daemon stands still

    def __contains__(self, tag: int) -> bool:
        return tag in self._asked

    def stop(self, tag: int) -> None:
        """Asks one to end, once, without waiting: its completion still comes."""
        if tag in self._asked or tag in self._unasked and self._submissions.stopped:
            return
        operation = self._running[tag].operation
        if self._submissions.ask(operation.cancel if isinstance(operation, Take) else operation.withdraw):
            self._asked.add(tag)
            self._unasked.discard(tag)
        elif self._submissions.stopped:
            self._unasked.add(tag)

    def again(self) -> None:
        """Asks those that could not be asked, unless the daemon still stands still."""
        if self._unasked and not self._submissions.stopped:
            unasked, self._unasked = self._unasked, set()
            for tag in unasked:
                self.stop(tag)

    def over(self, tag: int) -> None:
        """It runs no more."""
        self._asked.discard(tag)
        self._unasked.discard(tag)

    def clear(self) -> None:
        """None does."""
        self._asked.clear()
        self._unasked.clear()
