"""What a worker takes by itself: on a node without the scheduler's session, and loads that a step waits for."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set

from .. import NO_BLOCK, Completion, Error, Node, Status, Take
from .compat import logger
from .guard import ask, released
from .meta import Load
from .stats import Counts, reason
from .stopping import Stopping
from .submissions import Submissions

#: a failed run that goes this far says "all of the take"
_ALL = 0xFFFFFFFF


def failed_blocks(c: Completion) -> Set[int]:
    """The blocks that failed; none, if the take does not say which."""
    if any(run.stop >= _ALL for run in c.failed):
        return set()
    return {block for run in c.failed for block in range(run.first, run.stop)}


class _Begun(NamedTuple):
    operation: Take
    load: Load
    at: float

    def left(self) -> float:
        return max(self.at + self.load.timeout - time.monotonic(), 0)


class Loads:
    """One rank's takes. Called by the engine's thread alone. ``bad``: blocks that failed, once nothing lands in them any more."""

    def __init__(self, node: Node, rank: int, met: Callable[[str, float], None]) -> None:
        self._node, self._rank, self._met = node, rank, met
        self.counts = Counts()
        self._submissions = Submissions()
        self._takes: Dict[int, _Begun] = {}  # tag -> those that no step waits for, until they are over
        self._stopping = Stopping(self._takes, self._submissions)
        self._awaited: Dict[int, _Begun] = {}
        self._lost: Set[int] = set()  # tags of awaited ones that failed
        self.bad: Set[int] = set()

    def begin(self, loads: List[Load]) -> List[int]:
        """Submits this rank's part of each load. Returns the tags of those that could not be submitted."""
        refused = []
        for load in loads:
            if self._rank not in load.parts:
                continue
            try:
                take = self._submissions.make(load.take, self._node, load.parts[self._rank])
            except Error as error:
                logger.warning("kvpipe: request %s: %s", load.request, error)
                if load.awaited:
                    self.counts.part(load.tag, 0, 0, "refused")
                    self._spoil(load)
                    continue
                if self._counted(load):
                    self.counts.refused()
                refused.append(load.tag)
                continue
            (self._awaited if load.awaited else self._takes)[load.tag] = _Begun(take, load, time.monotonic())
        return refused

    def __contains__(self, tag: int) -> bool:
        return tag in self._takes

    def cancel(self, tag: int) -> None:
        """Asks for its end, which comes as a completion: until then its bytes may land. A daemon that stands still is asked by look()."""
        if tag in self._takes:
            self._stopping.stop(tag)

    def look(self) -> None:
        """Called in each step in which any may run."""
        self._stopping.again()

    def over(self, tag: int) -> None:
        begun = self._takes.pop(tag, None)
        self._stopping.over(tag)
        if begun is not None:
            self._count(begun)

    def _counted(self, load: Load) -> bool:
        """Whether this rank counts the load for all: every part is taken by a rank, and this one has the first."""
        return load.total == len(load.parts) and load.parts[self._rank] == 0

    def _count(self, begun: _Begun, complete: bool = True) -> None:
        take, load, at = begun
        end, seconds = _end(take), time.monotonic() - at
        if load.awaited:
            self.counts.part(load.tag, seconds, end.bytes if end is not None else 0, "" if complete else _why(end))
        if end is None or not self._counted(load):
            return
        size = end.bytes * load.total
        if not load.awaited:
            self.counts.ended(True, end._replace(bytes=size), seconds)
        if complete and end.status == Status.DONE and not load.at_once:  # else the scheduler has met its node already
            self._met(load.node, size / max(seconds, 1e-6))

    def wait(self) -> None:
        """Returns once the loads that the step begins with are in place, or have failed."""
        for tag, begun in list(self._awaited.items()):
            if begun.load.at_once:
                try:
                    begun.operation.wait(begun.left())
                except Error as error:
                    logger.warning("kvpipe: request %s computes its prompt here: %s", begun.load.request, error)
                else:
                    self._count(self._awaited.pop(tag))

    def wait_layer(self, layer: int) -> None:
        """Returns once the layer is in place for all that the step waits for, or has failed."""
        for tag, begun in self._awaited.items():
            if begun.load.layered and tag not in self._lost:
                try:
                    begun.operation.wait_layer(layer, begun.left())
                except Error as error:
                    logger.warning("kvpipe: request %s computes its prompt here: layer %d: %s", begun.load.request, layer, error)
                    self._lost.add(tag)

    def finish(self) -> None:
        """The step is over: ends what it still waits for, so that nothing lands any more."""
        for tag, begun in self._awaited.items():
            complete = self._complete(begun, begun.load.at_once or tag in self._lost)
            if not complete:
                self._spoil(begun.load, _end(begun.operation))
            self._count(begun, complete)
        self._awaited.clear()
        self._lost.clear()

    def _complete(self, begun: _Begun, lost: bool) -> bool:
        take, name = begun.operation, begun.load.request
        try:
            if not lost:
                take.wait(begun.left())
                return True
        except Error as error:
            logger.warning("kvpipe: request %s computes its prompt here: %s", name, error)
        ask(take.cancel)
        released(take, name)
        return False

    def _spoil(self, load: Load, end: Optional[Completion] = None) -> None:
        bad = failed_blocks(end) if end is not None else set()
        self.bad |= bad or {i for i in load.blocks[0] if i != NO_BLOCK}


def _end(take: Take) -> Optional[Completion]:
    try:
        return take.completion
    except Error:  # the session is over
        return None


def _why(end: Optional[Completion]) -> str:
    """Why nothing computes on a load: "timeout" if it succeeded, but only after it was given up."""
    if end is None:
        return "closed"
    return "timeout" if end.status == Status.DONE else reason(end)
