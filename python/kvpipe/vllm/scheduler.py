"""The scheduler's side: which requests load, which are offered. It touches no memory. One session submits for all ranks of
the engine on this node; each worker also hears of the ends by itself. What workers on other nodes load, and loads that a
step waits for, are submitted by the workers themselves.

Each step has a number, and blocks are written and read only between the right steps: a take writes no sooner than the step
begins in which its blocks were allocated; an offer is read no sooner than the last step that computed its request is saved."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from .. import Node
from . import atonce, packing
from . import params as wire
from .begin import Begin
from .compat import logger, room
from .guard import going_on
from .keyed import Keyed
from .meta import QUIET, Step
from .offers import Answer, Offers
from .operations import Operations
from .params import Settings, Source
from .peers import Peers
from .ranks import UNKNOWN, Ranks
from .stats import Counts
from .waiting import Waiting


class Scheduler:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, config: Any, cache: Any, settings: Settings) -> None:
        self._node, self._settings = node, settings
        self._blocks = packing.blocks(config, cache)
        self._ranks = Ranks(config, node.name)
        self._finds = bool(config.cache_config.enable_prefix_caching)  # whether a request finds what others computed or loaded
        # An engine that loads layer by layer must be able to take a step back; a mere producer is not checked for that at its start.
        self._layerwise = settings.layerwise and config.kv_transfer_config.kv_role != "kv_producer"
        self._promised = Keyed()  # request -> the key of the load that vLLM was told of, which it may hold back for steps under way
        self._loading = Keyed()  # request -> the key of its load, for which no step waits, until all ranks are done with it
        self._asking: Any = None  # the request that was asked about last, until it has blocks
        self._loaded: Dict[str, Any] = {}  # requests whose load is over, until they run: vLLM asks about them no more
        self._room: Optional[Callable[[], int]] = None  # blocks that are free; before vLLM 0.32 unknown
        self.counts = (counts := Counts()).take
        self._at_once = atonce.AtOnce(config, cache, Peers(node.name, settings.socket, settings.log_peers).met)
        self._operations = Operations(node, counts, self._at_once.met, settings.lease)
        self._waiting = Waiting(node, self._operations, settings)
        self.offers = Offers(node, config, settings, self._operations, self._blocks,
                             int(cache.num_blocks * settings.decode_offer_share))
        self._begin = Begin(node, settings, self._blocks, self._ranks, self._at_once, self._operations)
        self._tables: Any = None  # request -> its block tables
        self._step = self._last = 0  # and the last tag that workers were told of
        self._next = Step(1)

    def bind(self, manager: Any) -> None:
        self._tables, self._at_once.evict, self._room = manager.get_block_ids, manager.evict_blocks, room(manager)
        self.offers.spoiled.bind(manager)

    def places(self, places: Dict[Tuple[int, int], Any]) -> None:
        """What the workers have told, by (pp, tp)."""
        packing.heard(self._blocks, self._ranks.placed(places))
        self._at_once.possible = self._at_once.possible and self._ranks.alone and not self._ranks.apart
        self.offers.refused = self._ranks.refused
        if self._ranks.unknown:
            self._operations.end(UNKNOWN)

    # ---- requests come

    def add(self, request: Any) -> None:
        params = request.kv_transfer_params
        self._at_once.requests[request.request_id] = request
        if not params:
            return
        prefill, target = bool(params.get("do_remote_decode")), isinstance(params.get("transfer_id"), str)
        source = wire.incoming(params) if params.get("do_remote_prefill") or wire.names_source(params) else None
        if isinstance(source, str):
            logger.warning("kvpipe: request %s computes its prompt here: %s", request.request_id, source)
            source = None
        if prefill:
            self.offers.add(request, source if target else None)
        if source is not None and not (prefill and target):
            self._waiting.add(request.request_id, source)

    def matched(self, request: Any, computed: int) -> Tuple[Optional[int], bool]:
        """(how many tokens can be loaded beyond ``computed``, whether while others run). None: ask again.

        It may be called any number of times. It hears what producers have said meanwhile; an engine that has nothing else to do
        waits atonce.ANSWER for that. If the request finds no room, the next step makes some."""
        if computed > 0 and self._at_once.begins:  # it may have found blocks that are to be filled in the step that it would begin in
            self._asking = None
            return None, False
        name, self._asking = request.request_id, request
        self._promised.pop(name)
        known = self._waiting.requests.get(name)
        if known is None or not self._operations.usable:
            return 0, False
        source, prompt = known.source, int(request.num_prompt_tokens)
        # While other engines wait for layers of this one, no step here waits for theirs: two engines could wait for each other.
        layers = self._layerwise and source.early and not self.offers.layered.first()
        stop = min(prompt, source.tokens or prompt)
        if stop - computed < max(self._settings.kv_recompute_threshold, 1) or stop == request.num_tokens and self._blocks.short(stop):
            return 0, False
        if self._promised.any(source.key) or self._loading.any(source.key) or self._at_once.loads(source.key):  # its KV is given once
            self._asking = None
            return (None, False) if self._finds else (0, False)
        silent = known.asking and self._operations.silence.of(source.node) and not self._waiting.answered(name, 0)
        if silent and not self._waiting.fresh(known):
            return 0, False
        if layers and not (known.there or known.asking):  # its producer cannot be asked: nobody would say when it begins
            return 0, False
        if silent or layers and not known.there:
            self._asking = None  # the step would wait, for a prefill that has perhaps not begun
            return None, False
        awaited = layers or self._at_once.may(source, stop - computed) and self._waiting.answered(name, atonce.ANSWER)
        if name not in self._waiting.requests:  # its producer has just said that there is nothing
            return 0, False
        self._waiting.engine_asked(name, computed, awaited)
        self._promised.put(name, source.key)
        return stop - computed - (awaited and stop == request.num_tokens), not awaited  # one is computed, to sample from

    def allocated(self, request: Any, blocks: Any, count: int) -> None:
        """The request has blocks, and loads ``count`` tokens into the last of them; once."""
        self._asking, known = None, self._waiting.requests.pop(request.request_id, None)
        self._promised.pop(request.request_id)
        self._loaded.pop(request.request_id, None)
        if count > 0:
            if known is not None and not known.awaited:
                self._loading.put(request.request_id, known.source.key)
            self._begin.load(request, known, blocks.get_block_ids(), count, self._next)
        elif known is not None:
            self._operations.drop(known.source, request.request_id)
        self.offers.allocated(request, count)

    # ---- steps

    def step(self, output: Any) -> Step:
        """What the workers are told with the step that is about to run."""
        self._step += 1
        step = self._next
        with going_on(f"step {step.number}"):  # by itself: whatever fails, no step may write what is still read
            self.offers.layered.fence(output)
        with going_on(f"step {step.number}"):
            step.ended = self._operations.collect()
        with going_on(f"step {step.number}"):
            for load in self._at_once.step():
                self._waiting.forget(load.key)
            asked, self._asking = self._asking, None
            waiting = [r for r in (asked, *self._loaded.values()) if r is not None]  # has_pending_block_frees is for running ones
            if self.offers.keeps and any(self._room is None or self._blocks.lack(self._room(), self._tables(r.request_id), r.num_tokens)
                                         for r in waiting):
                self.offers.give_back()
            self.offers.step(output, step, self._tables)
            self._waiting.renew()
            step.last = (self.offers.layered.first() or self._operations.last + 1) - 1
        if step.empty and step.last == self._last:  # it is the next one as well
            step.number += 1
            return QUIET
        self._next, self._last = Step(self._step + 1), step.last
        return step

    def ended(self, received: Any, bad: Any, failed: Any = ()) -> None:
        """received: requests that all ranks are done with. On some rank, bad are blocks that are wrong, and failed requests that failed."""
        for request in self._ranks.hit(set(bad or ()), failed or ()):
            self._operations.whole.failed_elsewhere(request, "elsewhere")
            self._leave(request)  # what other ranks have of it is of no use
        for request in received or ():
            self._operations.whole.ended_elsewhere(request)
            self._ranks.takes.pop(request, None)
            key = self._loading.pop(request)
            if request in self._at_once.requests:  # else it was not for its KV that it ended: another may try
                self._loaded[request] = self._at_once.requests[request]
                if key is not None:
                    self._waiting.forget(key)
        for load in self._at_once.failed(bad) if bad else ():
            self._operations.drop(load, load.request)
        self.offers.spoiled.found(bad or (), self._at_once.requests)

    def _leave(self, request: str) -> None:
        """Nobody needs what workers take for it."""
        load = self._ranks.takes.pop(request, None)
        if load is not None:
            self._next.cancelled.append(load.tag)
            self._operations.drop(load, request)

    def finished(self, request: Any, tables: Sequence[Sequence[int]]) -> Answer:
        """(whether its blocks stay until they are reported as sent, what its answer carries)."""
        known = self._waiting.requests.pop(request.request_id, None)
        if known is not None:
            self._operations.drop(known.source, request.request_id)
        self._at_once.requests.pop(request.request_id, None)
        self._loaded.pop(request.request_id, None)
        self._promised.pop(request.request_id)
        self._operations.whole.failed_elsewhere(request.request_id, "cancelled")
        self._leave(request.request_id)
        self._operations.stop_load(request.request_id)
        return self.offers.finished(request, tables, self._next)

    def lost(self) -> None:
        """A rank has said that its session is over."""
        self._operations.end("the session of one of its ranks is over")
