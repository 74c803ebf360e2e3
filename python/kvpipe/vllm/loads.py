"""What a worker takes by itself: where its node has no scheduler to do it, and layer by layer, where the step waits."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, NamedTuple, Set

from .. import NO_BLOCK, Error, Node, Status, Take
from .compat import logger
from .meta import Load
from .stats import Counts

#: seconds that a step waits for the daemon to let go of the blocks of a load that failed
_FENCE = 10.0


class _Begun(NamedTuple):
    take: Take
    load: Load
    at: float

    def left(self) -> float:
        return max(self.at + self.load.timeout - time.monotonic(), 0)


class Loads:
    """One rank's. Called by the engine's thread alone."""

    def __init__(self, node: Node, rank: int, met: Callable[[str, float], None]) -> None:
        self._node, self._rank, self._met = node, rank, met
        self.counts = Counts()
        self._takes: Dict[int, _Begun] = {}  # tag -> those that no step waits for, until they are over
        self._awaited: Dict[int, _Begun] = {}
        self._lost: Set[int] = set()  # of those, which failed
        self._bad: Set[int] = set()

    def begin(self, loads: List[Load]) -> List[int]:
        """Submits this rank's part of each. Returns the tags of those that could not be."""
        refused = []
        for load in loads:
            if self._rank not in load.parts:
                continue
            try:
                take = load.take(self._node, load.parts[self._rank])
            except Error as error:
                logger.warning("kvpipe: request %s: %s", load.request, error)
                if self._counted(load):
                    self.counts.refused()
                if load.layered:
                    self._spoil(load)
                else:
                    refused.append(load.tag)
                continue
            (self._awaited if load.layered else self._takes)[load.tag] = _Begun(take, load, time.monotonic())
        return refused

    def __contains__(self, tag: int) -> bool:
        return tag in self._takes

    def cancel(self, tag: int) -> None:
        """Asks for its end, which comes as a completion: until then its bytes may land."""
        begun = self._takes.get(tag)
        if begun is not None:
            try:
                begun.take.cancel(timeout=0)
            except Error as error:
                logger.debug("kvpipe: %s", error)

    def over(self, tag: int) -> None:
        begun = self._takes.pop(tag, None)
        if begun is not None:
            self._count(begun)

    def _counted(self, load: Load) -> bool:
        """Whether this rank counts it for all: every part is taken by a rank, and this one has the first."""
        return load.total == len(load.parts) and load.parts[self._rank] == 0

    def _count(self, begun: _Begun) -> None:
        take, load, at = begun
        end = take.completion if self._counted(load) else None
        if end is not None:
            seconds, end = time.monotonic() - at, end._replace(bytes=end.bytes * load.total)
            self.counts.ended(True, end, seconds)
            if end.status == Status.DONE:
                self._met(load.node, end.bytes / max(seconds, 1e-6))

    def wait_layer(self, layer: int) -> None:
        """Returns once the layer is in place for all that the step waits for, or has failed."""
        for tag, begun in self._awaited.items():
            if tag not in self._lost:
                try:
                    begun.take.wait_layer(layer, begun.left())
                except Error as error:
                    logger.warning("kvpipe: request %s computes its prompt here: layer %d: %s", begun.load.request, layer, error)
                    self._lost.add(tag)

    def finish(self) -> Set[int]:
        """The step is over: what it waited for ends too, and nothing lands any more. Returns the blocks that failed."""
        for tag, begun in self._awaited.items():
            if not self._complete(begun, tag in self._lost):
                self._spoil(begun.load)
            self._count(begun)
        self._awaited.clear()
        self._lost.clear()
        bad, self._bad = self._bad, set()
        return bad

    def _complete(self, begun: _Begun, lost: bool) -> bool:
        take = begun.take
        try:
            if not lost:
                take.wait(begun.left())
                return True
        except Error as error:
            logger.warning("kvpipe: %s", error)
        try:
            if not take.cancel():
                take.wait_released(_FENCE)
        except Error as error:
            logger.error("kvpipe: blocks of a failed load are not released: %s", error)
        return False

    def _spoil(self, load: Load) -> None:
        self._bad.update(i for i in load.blocks[0] if i != NO_BLOCK)
