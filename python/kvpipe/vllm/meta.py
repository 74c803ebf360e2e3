"""What the scheduler's connector tells the workers' with each step. Plain values: it is pickled once a step."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .. import NO_BLOCK, Node, Take

#: phases of a step in progress values, step << 16 | phase
SAVED = 0xFFFF


def start_of(step: int) -> int:
    """Reached once all steps before this one are over: what is freed by then is no longer written."""
    return step << 16


def layer_of(step: int, layers: int) -> int:
    """Reached once so many layers of this step are written."""
    return step << 16 | min(layers, SAVED - 1)


def end_of(step: int) -> int:
    """Reached once the KV of this step is written."""
    return step << 16 | SAVED


class Load(NamedTuple):
    """A take in parts: one is the scheduler's session's, and each rank that takes by itself has one."""

    tag: int
    request: str
    key: str
    node: str  # the producer's
    token: bytes
    trace: Optional[str]
    content: bytes
    blocks: List[List[int]]
    start: int
    stop: int
    after: int
    parts: Dict[int, int]  # rank -> its part; ranks that are not named have nothing to do
    total: int
    timeout: float
    #: the step waits for it, layer by layer or before it computes; else it is reported once it is over
    layered: bool
    at_once: bool = False

    @property
    def awaited(self) -> bool:
        return self.layered or self.at_once

    @property
    def filled(self) -> Set[int]:
        """Its blocks, if there is one group; with several, a number does not say whose block it is."""
        return {i for i in self.blocks[0] if i != NO_BLOCK} if len(self.blocks) == 1 else set()

    def take(self, node: Node, part: int) -> Take:
        """Submits one part of it at a session. Raises Error."""
        return node.take(
            self.key, self.blocks, peer=self.node, token=self.token, tokens=(self.start, self.stop), after=self.after,
            timeout=self.timeout, tag=self.tag, trace=self.trace, content=self.content, part=(part, self.total), layered=self.layered)


@dataclasses.dataclass
class Step:
    """One step. Tags name operations in the completions of all sessions of the engine; they only grow."""

    #: its number, from 1 on
    number: int
    #: no tag up to this one will be named by a later step
    last: int = 0
    #: tag -> request, of offers and takes that began since the step before
    sends: Dict[int, str] = dataclasses.field(default_factory=dict)
    recvs: Dict[int, str] = dataclasses.field(default_factory=dict)
    #: (tag, done) of those that are over, and whose memory is free, as the scheduler's session has heard
    ended: List[Tuple[int, bool]] = dataclasses.field(default_factory=list)
    #: what workers take by themselves, and tags of such takes that nobody waits for any more
    loads: List[Load] = dataclasses.field(default_factory=list)
    cancelled: List[int] = dataclasses.field(default_factory=list)
    #: it computes what will be offered as soon as it is saved
    offered: bool = False
    #: blocks that it would compute on, and that nobody loads
    spoiled: List[int] = dataclasses.field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not any(self._values()[2:])

    def _values(self) -> List[Any]:
        return list(vars(self).values())

    def __reduce__(self) -> Tuple[Any, Tuple[Any, ...]]:
        """Pickled without the empty values at the end."""
        values = self._values()
        while len(values) > 1 and not values[-1]:
            values.pop()
        return Step, tuple(values)


class _Quiet(Step):
    """A step that begins and ends nothing, as most do. Each is pickled and read, so it is one object on each side, without a number."""

    def __reduce__(self) -> str:  # type: ignore[override]
        return "QUIET"


QUIET = _Quiet(0)


class Lost:
    """What a worker tells the scheduler once its session is over: its rank has no part in anything any more."""

    def aggregate(self, _: "Lost") -> "Lost":
        return self


@dataclasses.dataclass
class Place:
    """Where a worker is, which it tells the scheduler once, before the first step. alone: kvpipe is its only connector. Others, in
    MultiConnector, store what a step has computed before it is known that it computed on what did not come. form: packing.found() of its
    layers; None: not found out yet."""

    node: str
    alone: bool = True
    form: Optional[str] = None
