"""What a worker takes by itself: where its node has no scheduler to do it, and layer by layer, where the step waits."""

from __future__ import annotations

import time
from typing import Dict, List, NamedTuple, Set

from .. import NO_BLOCK, Error, Node, Take
from .compat import logger
from .meta import Load

#: seconds that a step waits for the daemon to let go of the blocks of a load that failed
_FENCE = 10.0


class _Awaited(NamedTuple):
    take: Take
    load: Load
    until: float


class Loads:
    """One rank's. Called by the engine's thread alone."""

    def __init__(self, node: Node, rank: int) -> None:
        self._node, self._rank = node, rank
        self._takes: Dict[int, Take] = {}  # tag -> those that no step waits for, until they are over
        self._awaited: Dict[int, _Awaited] = {}
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
                if load.layered:
                    self._spoil(load)
                else:
                    refused.append(load.tag)
                continue
            if load.layered:
                self._awaited[load.tag] = _Awaited(take, load, time.monotonic() + load.timeout)
            else:
                self._takes[load.tag] = take
        return refused

    def __contains__(self, tag: int) -> bool:
        return tag in self._takes

    def cancel(self, tag: int) -> None:
        """Asks for its end, which comes as a completion: until then its bytes may land."""
        take = self._takes.get(tag)
        if take is not None:
            try:
                take.cancel(timeout=0)
            except Error as error:
                logger.debug("kvpipe: %s", error)

    def over(self, tag: int) -> None:
        self._takes.pop(tag, None)

    def wait_layer(self, layer: int) -> None:
        """Returns once the layer is in place for all that the step waits for, or has failed."""
        for tag, (take, load, until) in self._awaited.items():
            if tag not in self._lost:
                try:
                    take.wait_layer(layer, max(until - time.monotonic(), 0))
                except Error as error:
                    logger.warning("kvpipe: request %s computes its prompt here: layer %d: %s", load.request, layer, error)
                    self._lost.add(tag)

    def finish(self) -> Set[int]:
        """The step is over: what it waited for ends too, and nothing lands any more. Returns the blocks that failed."""
        for tag, (take, load, until) in self._awaited.items():
            if not self._complete(take, until, tag in self._lost):
                self._spoil(load)
        self._awaited.clear()
        self._lost.clear()
        bad, self._bad = self._bad, set()
        return bad

    def _complete(self, take: Take, until: float, lost: bool) -> bool:
        try:
            if not lost:
                take.wait(max(until - time.monotonic(), 0))
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
