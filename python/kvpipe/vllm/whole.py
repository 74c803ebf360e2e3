"""Loads of which ranks on other nodes take parts by themselves: they are counted once the ends of all parts are known."""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Optional, Tuple

from .. import Completion, Status
from .stats import Counts


class _Open(NamedTuple):
    node: str  # the producer's
    share: float  # of the ranks that are here, among all; below 1
    here: Optional[Tuple[Completion, float]] = None  # the end of the part that was taken here, and the seconds until then
    elsewhere: bool = False  # the ranks on other nodes are done
    why: str = ""  # why what they took is of no use; "": it is


class Whole:
    """Those loads, by request. Called by the engine's thread alone."""

    def __init__(self, counts: Counts, met: Callable[[str, float], None]) -> None:
        self._counts, self._met = counts, met
        self._open: Dict[str, _Open] = {}

    def begun(self, request: str, node: str, share: float) -> None:
        self._open[request] = _Open(node, share)

    def ended_here(self, request: str, c: Completion, seconds: float) -> bool:
        """False: there is nothing elsewhere that it has to wait for."""
        if request not in self._open:
            return False
        self._look(request, self._open[request]._replace(here=(c, seconds)))
        return True

    def failed_elsewhere(self, request: str, why: str) -> None:
        if request in self._open:
            self._open[request] = self._open[request]._replace(why=self._open[request].why or why)

    def ended_elsewhere(self, request: str) -> None:
        if request in self._open:
            self._look(request, self._open[request]._replace(elsewhere=True))

    def clear(self) -> None:
        """No end will be heard of any more."""
        self._open.clear()

    def _look(self, request: str, now: _Open) -> None:
        self._open[request] = now
        if now.here is None or not now.elsewhere:
            return
        del self._open[request]
        c, seconds = now.here
        if c.status != Status.DONE or not now.why:
            c = c._replace(bytes=round(c.bytes / now.share))
            self._counts.ended(True, c, seconds)
            if c.status == Status.DONE:
                self._met(now.node, c.bytes / max(seconds, 1e-6))
        else:
            self._counts.failed(now.why)
