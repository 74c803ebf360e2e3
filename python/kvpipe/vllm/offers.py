"""The producing half of the scheduler's side: what is offered when a request is finished, or while it is computed."""

from __future__ import annotations

import secrets
import time
from typing import Any, Dict, Optional, Sequence, Tuple

from .. import Node
from . import params as wire
from . import requests
from .compat import RequestStatus
from .layered import LayeredOffers
from .meta import Step, end_of
from .operations import Operations
from .params import Settings, Source
from .spoiled import Spoiled

_DELIVERED = (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
Answer = Tuple[bool, Optional[Dict[str, Any]]]
_NOTHING: Answer = (False, None)
#: seconds that blocks may be on their way back, before the engine looks for others
_BACK = 1.0


class Offers:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, config: Any, settings: Settings, operations: Operations, blocks: requests.Blocks,
                 room: int) -> None:
        self._node, self._settings, self._operations, self._blocks, self._room = node, settings, operations, blocks, room
        self._engine = str(config.kv_transfer_config.engine_id)
        self._tp = int(config.parallel_config.tensor_parallel_size)
        self._prefills: Dict[str, int] = {}  # request that will be offered -> the last step that computed it
        self._targets: Dict[str, Source] = {}  # request -> under which key, where the proxy has said so
        self.layered = LayeredOffers(node, operations, blocks, settings)
        #: who trusts what was not loaded, and is not offered
        self.spoiled = Spoiled(blocks.size, int(config.parallel_config.pipeline_parallel_size) + bool(config.scheduler_config.async_scheduling))
        self._asked_back: Dict[int, float] = {}  # tag of what is on its way back -> when it was asked for
        #: why nothing is offered; "": it is
        self.refused = ""

    def add(self, request: Any, target: Optional[Source]) -> None:
        """The request is a prefill for another engine."""
        self._prefills[request.request_id] = 0
        if target is not None:
            self._targets[request.request_id] = target

    def allocated(self, request: Any, ours: int) -> None:
        """It begins, or begins again; ours: how many of its tokens are loaded by this connector."""
        self.spoiled.allocated(request.request_id)
        if self._settings.layerwise:
            self.layered.allocated(request, ours)
        target = self._targets.get(request.request_id)
        good = not self.refused and self._operations.usable and request.request_id not in self.spoiled
        if target is not None and self._settings.layerwise and good:
            self.layered.begin(request, target)

    def step(self, output: Any, step: Step, tables: Any) -> None:
        if self._asked_back:
            self._asked_back = {tag: asked for tag, asked in self._asked_back.items() if tag in self._operations.running}
        if self._prefills:
            for request in self._prefills.keys() & output.num_scheduled_tokens.keys():
                self._prefills[request] = step.number
                step.offered = True
        self.layered.step(output, step.number, tables)
        self.spoiled.step()

    def finished(self, request: Any, tables: Sequence[Sequence[int]], following: Step) -> Answer:
        """(whether its blocks stay until they are reported as sent, what its answer carries). following: the next step."""
        name = request.request_id
        step, target = self._prefills.pop(name, None), self._targets.pop(name, None)
        good = not self.spoiled.over(name) and request.status in _DELIVERED and self._operations.usable and not self.refused
        if name in self.layered:
            return self._end_layered(request, tables, target, good, following)
        if not good:
            return _NOTHING
        if step is not None:
            tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
            return self._offer(request, tables, tokens, step, self._settings.lease, target, following)
        return self._keep(request, tables, following)

    def _end_layered(self, request: Any, tables: Any, target: Optional[Source], good: bool, following: Step) -> Answer:
        tag, complete = self.layered.end(request, good)
        waits = tag in self._operations.running
        if waits:
            following.sends[tag] = request.request_id
        if not complete or target is None:
            return waits, None
        source = target._replace(tokens=request.num_prompt_tokens)
        return waits, self._params(request, self._blocks.lists(tables, 0, self._blocks.end(source.tokens)), source, True)

    def _keep(self, request: Any, tables: Sequence[Sequence[int]], following: Step) -> Answer:
        """Offers what a decode engine has computed to the prefill of the next turn, if somebody asked for that."""
        seconds = wire.keep(request.kv_transfer_params, self._settings.decode_offer)
        if seconds <= 0:
            return _NOTHING
        kept = sum(running.blocks for running in self._operations.running.values())
        if kept + requests.held(tables) > self._room:
            return _NOTHING
        tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        return self._offer(request, tables, tokens, following.number - 1, seconds, None, following, prefill=False)

    def _offer(self, request: Any, tables: Sequence[Sequence[int]], tokens: int, step: int, lease: float,
               target: Optional[Source], following: Step, prefill: bool = True) -> Answer:
        if tokens <= 0:
            return _NOTHING
        tag = self._operations.tag()
        source = target or Source(self._node.name, requests.key(self._engine, tag, request.request_id),
                                  secrets.token_bytes(16), requests.trace(request), 0)
        source = source._replace(tokens=tokens)
        slots = self._blocks.end(tokens)
        lists = self._blocks.lists(tables, 0, slots)
        answer = True, self._params(request, lists, source, prefill)  # first, as it may raise, and there is no offer to leave behind yet
        offer = self._operations.submit(
            self._node.offer, source.key, lists, tokens=slots, token=source.token, lease=lease, after=end_of(step), tag=tag,
            trace=source.trace, content=requests.digest(request, tokens))
        if offer is None:
            return _NOTHING
        self._operations.keep(tag, request.request_id, offer, blocks=0 if prefill else requests.held(tables))
        following.sends[tag] = request.request_id
        return answer

    def _params(self, request: Any, lists: Any, source: Source, prefill: bool) -> Dict[str, Any]:
        return wire.outgoing(
            blocks=requests.delivered(lists), engine=self._engine, request=request.request_id, tp=self._tp, source=source,
            address=self._settings.advertise or self._node.advertise, prefill=prefill,
            keep=wire.keep(request.kv_transfer_params) if prefill else 0)

    def reset(self) -> None:
        """The model has changed: no KV from before may be taken any more."""
        for tag, running in self._operations.running.items():
            if running.source is None:
                self._operations.stop(tag)
        self.layered.reset()

    @property
    def keeps(self) -> bool:
        """Whether anything is kept for a next turn."""
        return any(running.blocks for running in self._operations.running.values())

    def give_back(self) -> bool:
        """Ends the offers to next turns, which only save work. Returns whether blocks are on their way back: the engine waits for
        them. False after _BACK, as the engine must not wait for a daemon that stands still."""
        kept = [tag for tag, running in self._operations.running.items() if running.blocks]
        for tag in kept:
            self._operations.stop(tag)
        now = time.monotonic()
        self._asked_back = {tag: self._asked_back.get(tag, now) for tag in kept}
        return any(now < asked + _BACK for asked in self._asked_back.values())
