"""A load begins: what is asked for, of whom, in how many parts."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from .. import Node
from . import atonce, requests
from .meta import Load, Step, start_of
from .operations import Operations
from .params import Settings
from .ranks import Ranks
from .waiting import Known


class Begin:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, settings: Settings, blocks: requests.Blocks, ranks: Ranks, at_once: atonce.AtOnce,
                 operations: Operations) -> None:
        self._node, self._settings, self._blocks, self._ranks = node, settings, blocks, ranks
        self._at_once, self._operations = at_once, operations

    def load(self, request: Any, known: Optional[Known], tables: Sequence[Sequence[int]], count: int, step: Step) -> None:
        """Loads ``count`` tokens, in the step that is next. known: None if the offer went while the engine held the load back for
        steps under way."""
        tag, begun = self._operations.tag(), False
        try:
            if known is not None:
                self._load(request, known, tables, count, tag, step)
                begun = True
        finally:
            if not begun and known is not None and known.awaited:  # the engine computes on it
                step.spoiled += tables[0]
                self._at_once.begun(None, tables[0])
            elif not begun:  # the engine waits for an end
                step.recvs[tag] = request.request_id
                self._operations.failed(tag)

    def _load(self, request: Any, known: Known, tables: Sequence[Sequence[int]], count: int, tag: int, step: Step) -> None:
        name, source = request.request_id, known.source
        layered = known.awaited and source.early  # what is loaded at once is never early
        at_once, stop = known.awaited and not layered, self._blocks.end(known.start + count)
        world = self._ranks.world
        parts = {rank: rank for rank in range(world)} if known.awaited else dict(self._ranks.apart)
        load = Load(tag, name, source.key, source.node, source.token, source.trace,
                    requests.digest(request, source.tokens or int(request.num_prompt_tokens)),
                    self._blocks.lists(tables, known.start, stop), known.start, stop, start_of(step.number), parts,
                    len(parts) + (len(parts) < world), atonce.PATIENCE if at_once else self._settings.timeout, layered, at_once)
        if parts:
            step.loads.append(load)
        if known.awaited:
            self._at_once.begun(load, tables[0])
            return
        if parts:
            self._ranks.takes[name] = load
        step.recvs[tag] = name
        if len(parts) == world:  # nothing is left for this session to take
            return
        take = self._operations.submit(load.take, self._node, 0)
        if take is None:
            self._operations.failed(tag)
            return
        self._operations.keep(tag, name, take, source=source)
        if parts:
            self._operations.whole.begun(name, source.node, (world - len(parts)) / world)
