"""A worker's side: its memory, how far it is, and what has ended. Nothing here is done for each request: the scheduler's
session submits for all ranks, and each rank hears of the ends by tag."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from .. import Completion, Error, Node, Status
from . import bell, layout
from .compat import Results, by_blocks, logger
from .loads import Loads, failed_blocks
from .meta import QUIET, Lost, Place, Step, end_of, layer_of, start_of
from .memory import Memory
from .params import Settings
from .peers import Peers


class Worker:
    """One rank. Called by the engine's thread alone."""

    def __init__(self, node: Node, config: Any, cache: Any, settings: Settings, heads: layout.Heads, stage: int = 0) -> None:
        self._node, self._heads = node, heads
        self.place = Place(node.name)
        self.memory = Memory(node, config, cache, settings, heads)
        self._open: Dict[int, Tuple[str, bool]] = {}  # tag -> request, whether it receives
        self._early: Dict[int, List[Completion]] = {}  # of tags that no step has named yet
        self._failed: Dict[int, Completion] = {}  # receives that failed, and whose memory is not free yet
        self._last = 0  # the last tag named
        self._ended: List[Tuple[int, bool]] = []  # what the scheduler has heard, for the next look
        self._unfinished: Set[str] = set()  # requests of sends that the engine has not called finished yet
        self._held: Set[str] = set()  # those of them that are sent
        self._step = 0
        self._by_blocks = by_blocks(cache)
        self._layerwise = settings.layerwise
        self._computes = True  # whether this step does
        self.offered = False  # whether what it computes may be offered
        self._saved: Set[str] = set()  # the layers that it has written
        self._layers = 0  # so many, from the first on, are written
        self._waits = False  # whether it may have to wait for what it computes on
        self._loads = Loads(node, heads.rank + heads.ranks * stage, Peers(node.name, settings.socket, settings.log_peers).met)
        self.counts = self._loads.counts.take
        #: what the scheduler has to hear once the session is over, and this rank can hand nothing over any more
        self.lost: Optional[Lost] = None

    # ---- steps

    def begin(self, step: Step, computes: bool = True) -> None:
        """A step begins, and those before it are over. May be told several times. computes: whether it has a forward pass."""
        self._computes = computes
        if step is QUIET:
            self.offered = False
            return
        if step.number == self._step:
            return
        self._step, self._last, self.offered = step.number, max(self._last, step.last), step.offered
        self._saved, self._layers = set(), 0
        if step.recvs or step.loads or step.sends or self._layerwise:  # only these may wait for its start, or for the end of a step before
            self._reached(start_of(step.number))
        self._open.update({tag: (request, False) for tag, request in step.sends.items()})
        self._unfinished.update(step.sends.values())
        self._open.update({tag: (request, True) for tag, request in step.recvs.items()})
        if step.loads:
            self._waits = True
            self._ended += [(tag, False) for tag in self._loads.begin(step.loads)]
        for tag in step.cancelled:
            self._loads.cancel(tag)
        self._loads.bad.update(step.spoiled)

    def load(self) -> None:
        """What the step computes on is there when this returns, or never."""
        if self._waits:
            self._loads.wait()

    def wait_layer(self, name: str) -> None:
        if name in self.memory.layers:
            self._loads.wait_layer(self.memory.layers[name])

    def layer_saved(self, name: str) -> None:
        """A layer may have several tensors, and need not come behind those before it: an encoder may have layers of the same numbers."""
        if self.offered and name in self.memory.layers:
            self._saved.add(name)
            before, stack = self._layers, self.memory.stack
            while self._layers < len(stack) and stack[self._layers] <= self._saved:
                self._layers += 1
            if self._layers > before:
                self._reached(layer_of(self._step, self._layers))

    def saved(self) -> None:
        """The step's KV is written, by drafts too."""
        if self.offered:
            self._reached(end_of(self._step))

    def _reached(self, progress: int) -> None:
        if not self.lost:
            try:
                self._node.progress(progress)
            except Error as error:
                self._end(error)

    def _end(self, error: Error) -> None:
        logger.error("kvpipe: rank %d: no more hand-overs until this engine is restarted: %s", self._heads.rank, error)
        self.lost = Lost()

    # ---- ends

    def results(self, step: Optional[Step], finished: Set[str]) -> Any:
        """What has ended since the last call, each once."""
        out, waited, self._waits = Results(), self._waits, False
        if waited:
            self._loads.finish()
        if not (waited or self._open or self._early or self._held or self._layerwise):
            return out  # what came of tags that are not named yet stays in the ring; offers of layers may end without being named
        self._loads.look()
        completions = self._poll()
        if not completions and not self._computes and self._open and not self.lost:
            bell.sleep(self._node, bell.LOAD if any(receives for _, receives in self._open.values()) else bell.OFFER)
            completions = self._poll()
        named = [tag for tag in self._early if tag <= self._last or tag in self._open]
        for c in [*(c for tag in named for c in self._early.pop(tag)), *completions]:  # in the order in which they came
            if c.tag in self._open:
                self._take_in(c, out)
            elif c.tag > self._last:
                self._early.setdefault(c.tag, []).append(c)
        # The scheduler's word counts if this rank has heard nothing itself, as its daemon was replaced or its session is over.
        # It says nothing of what this rank takes by itself.
        for tag, done in self._ended if not self.lost else [(tag, False) for tag in self._open]:
            if tag in self._open and (self.lost or tag not in self._loads):
                self._close(tag, out, failed=not done)
        self._ended = list(step.ended) if step is not None else []
        if self._unfinished:
            self._hold_back(out, finished)
        return out

    def _poll(self) -> List[Completion]:
        if not self.lost:
            try:
                return self._node.poll()
            except Error as error:
                self._end(error)
        return []

    def _hold_back(self, out: Any, finished: Set[str]) -> None:
        """The engine hears of a send only after it has called the request finished."""
        self._unfinished -= finished
        out.finished_sending |= self._held
        self._held = out.finished_sending & self._unfinished
        out.finished_sending -= self._held

    def _take_in(self, c: Completion, out: Any) -> None:
        _, receives = self._open[c.tag]
        if receives and c.status in (Status.FAILED, Status.CANCELLED):
            self._failed[c.tag] = c
        if c.released:
            failure = self._failed.pop(c.tag, None)
            self._close(c.tag, out, failed=failure is not None and not self._spread(failure))

    def _spread(self, c: Completion) -> bool:
        """Names the blocks that failed; False when that cannot be done block by block."""
        bad = failed_blocks(c) if self._by_blocks else set()
        self._loads.bad |= bad
        return bool(bad)

    def _close(self, tag: int, out: Any, failed: bool) -> None:
        request, receives = self._open.pop(tag)
        self._loads.over(tag)
        self._failed.pop(tag, None)
        (out.finished_recving if receives else out.finished_sending).add(request)
        if receives and failed:
            out.failed_recving.add(request)

    def failed_blocks(self) -> Set[int]:
        bad, self._loads.bad = self._loads.bad, set()
        return bad
