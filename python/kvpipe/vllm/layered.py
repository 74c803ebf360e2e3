"""Offers that grow while their request is computed, so that the transfer overlaps the prefill, layer by layer."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Sequence, Tuple

from .. import Busy, Error, Node, Offer
from . import requests
from .compat import logger
from .meta import start_of
from .operations import Operations
from .params import Settings, Source


class _Growing(NamedTuple):
    tag: int
    offer: Offer
    request: Any
    withdrawn: bool = False


class LayeredOffers:
    """These offers, by request. Called by the engine's thread alone."""

    def __init__(self, node: Node, operations: Operations, blocks: requests.Blocks, settings: Settings) -> None:
        self._node, self._operations, self._blocks, self._settings = node, operations, blocks, settings
        self._offers: Dict[str, _Growing] = {}
        self._unsure = 0  # steps in which requests may still begin on what another connector has not loaded yet

    def __contains__(self, request: str) -> bool:
        return request in self._offers

    def first(self) -> int:
        """The oldest tag that a step has yet to name; 0: none."""
        return min(growing.tag for growing in self._offers.values()) if self._offers else 0

    def allocated(self, request: Any, ours: int) -> None:
        """A request has blocks; ``ours`` of its tokens are loaded by this connector. If another one loads into its first step and fails,
        vLLM takes the step back, layers and all. It takes back also what has found these blocks since: in the same step or, with
        asynchronous scheduling, in the next one. Of a request that was preempted vLLM does not say whether anything is loaded."""
        stats = request.prefill_stats  # None once it has answered
        loads = request.num_preemptions or stats is not None and stats.num_external_cached_tokens > 0
        if loads and not ours and not request.num_computed_tokens:
            self._unsure = 2

    def begin(self, request: Any, source: Source) -> None:
        """Begins a request's offer, once. After a preemption its taker has heard the end of it; the request is then offered whole once it
        is computed. So it is where its first step may be taken back."""
        if self._unsure or request.num_preemptions or request.request_id in self._offers:
            return
        tag = self._operations.tag()
        offer = self._operations.submit(
            self._node.offer, source.key, [], tokens=0, token=source.token, lease=self._settings.lease, sealed=False, tag=tag,
            trace=source.trace, content=requests.digest(request, request.num_prompt_tokens))
        if offer is not None:
            self._operations.keep(tag, request.request_id, offer)
            self._offers[request.request_id] = _Growing(tag, offer, request)

    def fence(self, output: Any) -> None:
        """Waits until the offers of preempted requests are released, as the step writes their blocks."""
        if self._offers:
            gone = map(self._offers.pop, self._offers.keys() & set(output.preempted_req_ids or ()))
            self._operations.wait_over({growing.tag for growing in gone})

    def step(self, output: Any, number: int, tables: Callable[[str], Sequence[Sequence[int]]]) -> None:
        """Extends by what this step computes."""
        self._unsure = max(self._unsure - 1, 0)
        for name in self._offers.keys() & output.num_scheduled_tokens.keys():
            self._extend(self._offers[name], output.num_scheduled_tokens[name], number, tables(name))

    def _extend(self, growing: _Growing, scheduled: int, number: int, tables: Sequence[Sequence[int]]) -> None:
        offer, prompt = growing.offer, growing.request.num_prompt_tokens
        total = growing.request.num_computed_tokens + scheduled
        slots = self._blocks.end(prompt) if total >= prompt else self._blocks.filled(total)
        if slots <= offer.tokens or growing.withdrawn:
            return
        try:
            self._operations.submissions.make(
                offer.extend, self._blocks.lists(tables, offer.tokens, slots), slots, start_of(number), layered=True, timeout=0)
        except Busy:  # which has been said
            pass
        except Error as error:
            logger.warning("kvpipe: request %s is not offered further: %s", growing.request.request_id, error)

    def reset(self) -> None:
        """The offers are being withdrawn: their requests go on without."""
        self._offers = {name: growing._replace(withdrawn=True) for name, growing in self._offers.items()}

    def end(self, request: Any, good: bool) -> Tuple[int, bool]:
        """Seals the offer, or withdraws it. Returns (its tag, 0 if none of its blocks is read; whether it can be taken)."""
        growing = self._offers.pop(request.request_id)
        if request.num_preemptions:  # since the last step: its blocks are free already, and no fence() will see it any more
            self._operations.wait_over({growing.tag})
            return 0, False
        complete = good and growing.offer.tokens >= request.num_prompt_tokens and not growing.withdrawn
        if growing.tag in self._operations.running:
            submissions = self._operations.submissions
            complete = complete and (submissions.ask(growing.offer.seal) or not submissions.stopped)
            if not complete:
                self._operations.stop(growing.tag)
        return growing.tag if growing.offer.tokens else 0, complete
