"""The scheduler's side: which requests load, which are offered. It touches no memory. One session submits for all ranks of
the engine on this node; each worker hears of the ends by itself, what is heard here is a second word.

Each step has a number; blocks are written and read only between the right ones: a take not before the step that its blocks
were allocated in begins, an offer not before the last step that computed its request is saved."""

from __future__ import annotations

import secrets
import time
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from .. import Node
from . import params as wire
from . import requests
from .compat import RequestStatus, logger, transfer_groups
from .meta import Step, end_of, start_of
from .operations import Operations
from .params import Settings, Source
from .stats import Counts

_DELIVERED = (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
Answer = Tuple[bool, Optional[Dict[str, Any]]]
_NOTHING: Answer = (False, None)


class _Waiting(NamedTuple):
    """A request that may load, before it has blocks."""

    source: Source
    renew: float  # when its producer has to hear of it again


class Scheduler:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, config: Any, cache: Any, settings: Settings) -> None:
        self._node, self._settings, self._engine = node, settings, str(config.kv_transfer_config.engine_id)
        self._tp = int(config.parallel_config.tensor_parallel_size)
        groups = transfer_groups(cache)
        sizes = [int(cache.kv_cache_groups[i].kv_cache_spec.block_size) for i in groups]
        packed = config.device_config.device_type == "cpu"
        self._blocks = requests.Blocks(groups, sizes, max(sizes) if packed else 1)
        self._room = int(cache.num_blocks * settings.decode_offer_share)
        self._waiting: Dict[str, _Waiting] = {}
        self._prefills: Dict[str, int] = {}  # request that will be offered -> the last step that computed it
        self._counts = Counts()
        self._operations = Operations(node, self._counts, self._met)
        self._peers: Dict[str, float] = {}
        self._step = 0
        self._next = Step(1)

    # ---- requests come

    def add(self, request: Any) -> None:
        params = request.kv_transfer_params
        if not params:
            return
        prefill = bool(params.get("do_remote_decode"))
        if prefill:
            self._prefills[request.request_id] = 0
        if params.get("do_remote_prefill") or (prefill and params.get("kvpipe")):
            source = wire.incoming(params)
            if isinstance(source, str):
                logger.warning("kvpipe: request %s computes its prompt here: %s", request.request_id, source)
                return
            self._waiting[request.request_id] = self._watch(source)

    def _watch(self, source: Source) -> _Waiting:
        self._tell(self._node.watch, source)
        return _Waiting(source, time.monotonic() + self._settings.lease / 3)

    def _tell(self, what: Any, source: Source) -> None:
        self._operations.submit(what, source.key, self._peer(source), source.token, timeout=self._settings.lease, trace=source.trace)

    def _peer(self, source: Source) -> Optional[str]:
        return None if source.node == self._node.name else source.node

    def matched(self, request: Any, computed: int) -> Tuple[int, bool]:
        """How many tokens can be loaded beyond ``computed``. Changes nothing."""
        waiting = self._waiting.get(request.request_id)
        if waiting is None or not self._node.connected:
            return 0, False
        count = self._known(request, waiting.source) - computed
        return (count, True) if count > 0 and count >= self._settings.kv_recompute_threshold else (0, False)

    @staticmethod
    def _known(request: Any, source: Source) -> int:
        prompt = int(request.num_prompt_tokens)
        return min(prompt, source.tokens or prompt)

    def allocated(self, request: Any, blocks: Any, count: int) -> None:
        """The request has blocks, and loads ``count`` tokens into the last of them; once."""
        waiting = self._waiting.pop(request.request_id, None)
        if waiting is None:
            return
        if count == 0:
            self._tell(self._node.drop, waiting.source)
        else:
            self._load(request, waiting.source, blocks.get_block_ids(), count)

    def _load(self, request: Any, source: Source, tables: Sequence[Sequence[int]], count: int) -> None:
        known = self._known(request, source)
        start, stop = known - count, self._blocks.end(known)
        tag = self._operations.tag()
        self._next.recvs[tag] = request.request_id
        take = self._operations.submit(
            self._node.take, source.key, self._blocks.lists(tables, start, stop), peer=self._peer(source), token=source.token,
            tokens=(start, stop), after=start_of(self._step + 1), timeout=self._settings.timeout, tag=tag, trace=source.trace,
            content=requests.digest(request, source.tokens or known))
        if take is None:
            self._operations.failed(tag)
        else:
            self._operations.keep(tag, request.request_id, take, peer=source.node)

    # ---- steps

    def step(self, output: Any) -> Step:
        """What the workers are told with the step that is about to run."""
        self._step += 1
        step, self._next = self._next, Step(self._step + 1)
        if self._prefills:
            for request in self._prefills.keys() & output.num_scheduled_tokens.keys():
                self._prefills[request] = self._step
        step.ended = self._operations.collect()
        if self._waiting:
            self._renew()
        step.last = self._operations.last
        return step

    def _renew(self) -> None:
        now = time.monotonic()
        for request, waiting in self._waiting.items():
            if now >= waiting.renew:
                self._waiting[request] = self._watch(waiting.source)

    def _met(self, peer: str, rate: float) -> None:
        if peer not in self._peers and self._settings.log_peers:
            logger.info("kvpipe: %s -> %s: first load at %.1f MB/s", peer, self._node.name, rate / 1e6)
        self._peers[peer] = rate

    # ---- requests go

    def finished(self, request: Any, tables: Sequence[Sequence[int]]) -> Answer:
        """(whether its blocks stay until they are reported as sent, what its answer carries)."""
        name = request.request_id
        step = self._prefills.pop(name, None)
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            self._tell(self._node.drop, waiting.source)
        self._operations.stop_load(name)
        if request.status not in _DELIVERED or not self._node.connected:
            return _NOTHING
        if step is not None:
            return self._offer(request, tables, min(request.num_computed_tokens, request.num_prompt_tokens), step,
                               self._settings.lease, prefill=True)
        return self._keep(request, tables)

    def _keep(self, request: Any, tables: Sequence[Sequence[int]]) -> Answer:
        """Offers what a decode engine has computed to the prefill of the next turn, if somebody asked for that."""
        asked = (request.kv_transfer_params or {}).get("kvpipe")
        seconds = asked.get("keep", self._settings.decode_offer) if isinstance(asked, dict) else self._settings.decode_offer
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= 3600:
            return _NOTHING
        tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        kept = sum(r.blocks for r in self._operations.running.values())
        if kept + sum(len(ids) for ids in tables) > self._room:
            return _NOTHING
        return self._offer(request, tables, tokens, self._step, float(seconds), prefill=False)

    def _offer(self, request: Any, tables: Sequence[Sequence[int]], tokens: int, step: int, lease: float, prefill: bool) -> Answer:
        if tokens <= 0:
            return _NOTHING
        slots, tag = self._blocks.end(tokens), self._operations.tag()
        lists = self._blocks.lists(tables, 0, slots)
        source = Source(self._node.name, requests.key(self._engine, tag, request.request_id), secrets.token_bytes(16),
                        requests.trace(request), tokens)
        offer = self._operations.submit(
            self._node.offer, source.key, lists, tokens=slots, token=source.token, lease=lease, after=end_of(step), tag=tag,
            trace=source.trace, content=requests.digest(request, tokens))
        if offer is None:
            return _NOTHING
        self._operations.keep(tag, request.request_id, offer, blocks=0 if prefill else sum(len(ids) for ids in tables))
        self._next.sends[tag] = request.request_id
        return True, wire.outgoing(
            blocks=requests.delivered(lists), engine=self._engine, request=request.request_id, tp=self._tp, source=source,
            address=self._settings.advertise or self._node.advertise, prefill=prefill)

    # ---- the rest

    def give_back(self) -> bool:
        """Ends the offers to next turns, which only save work; whether any blocks are on their way back."""
        kept = [tag for tag, running in self._operations.running.items() if running.blocks]
        for tag in kept:
            self._operations.stop(tag)
        return bool(kept)

    def counts(self) -> Optional[Counts]:
        return None if self._counts.is_empty() else self._counts.take()

    def close(self) -> None:
        self._node.close()
