"""Loads that a step waits for before it computes. A load beside other requests is heard of by the next step, and computed on by the
one after. An engine that has no other requests gains nothing by that, and a short load takes less time."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from .compat import by_blocks, takes_back, transfer_groups
from .meta import Load
from .params import Source

#: seconds: a step waits only for a load that is expected to take no longer
SHORT = 0.0125
#: seconds that the step really waits before it gives the load up: on a busy machine a short load takes longer than expected, and yet
#: less than computing the prompt
PATIENCE = 0.1
#: milliseconds that the engine first waits for the producer to say that the KV is there: it has nothing else to do
ANSWER = 2
#: a load, None where it could not even be asked for, and the blocks of its request
_Awaited = Tuple[Optional[Load], Sequence[int]]


class AtOnce:
    """Decides when a step waits, and what happens when it waited in vain, for such a load or for a layer. Called by the engine's thread
    alone.

    ``possible``: whether this engine does it at all. ``requests``: all that the engine has, by id. ``evict``: keeps other requests from
    finding blocks any more; None before vLLM 0.32."""

    def __init__(self, config: Any, cache: Any, met: Callable[[str, float], None]) -> None:
        self._met = met
        self.evict: Optional[Callable[[Set[int]], None]] = None
        # A failed load is reported by its blocks, which cannot always be done, and never to a step that has begun meanwhile.
        self.possible = (config.kv_transfer_config.kv_load_failure_policy == "recompute"
                         and len(transfer_groups(cache)) == 1 and by_blocks(cache)
                         and config.parallel_config.pipeline_parallel_size == 1 and not config.scheduler_config.async_scheduling
                         and takes_back(config))
        self._size = _size(cache) * int(config.parallel_config.tensor_parallel_size) if self.possible else 0.0
        self._rates: Dict[str, float] = {}  # node -> the most bytes a second that it was seen to give
        self.requests: Dict[str, Any] = {}
        self._next: List[_Awaited] = []  # what the next step waits for
        self._last: List[_Awaited] = []  # what the last one waited for

    def met(self, node: str, rate: float) -> None:
        """A load beside others succeeded. Its end was heard of late, so the highest rate is the nearest to the truth."""
        self._met(node, rate)
        self._rates[node] = max(rate, self._rates.get(node, 0))

    def may(self, source: Source, count: int) -> bool:
        """Whether the step that a request begins in waits for its load of so many tokens. Not beside other requests: they would
        wait, too, and might find its blocks before it is known that nothing came."""
        rate = self._rates.get(source.node, 0)
        return (self.possible and self.evict is not None and not source.early and len(self.requests) < 2
                and count * self._size <= SHORT * rate)

    @property
    def begins(self) -> bool:
        """Whether the next step waits for any. From now on vLLM lets other requests find their blocks. Those trust that the blocks are
        filled, or computed again by the request that was to load them, even if that request has gone meanwhile."""
        return bool(self._next)

    def begun(self, load: Optional[Load], blocks: Sequence[int]) -> None:
        self._next.append((load, blocks))

    def loads(self, key: str) -> bool:
        """Whether the next step waits for a load of it."""
        return any(load is not None and load.key == key for load, _ in self._next)

    def step(self) -> List[Load]:
        """Called when the next step goes out. Returns the loads that it waits for."""
        self._last, self._next = self._next, []
        return [load for load, _ in self._last if load is not None]

    def failed(self, bad: Set[int]) -> List[Load]:
        """The loads that were to fill these blocks, and did not. Their blocks are evicted: vLLM lets other requests find blocks as
        soon as they are allocated, and would do so even after their request is gone."""
        failed = [(load, blocks) for load, blocks in self._last if not bad.isdisjoint(load.blocks[0] if load else blocks)]
        for _, blocks in failed:
            if self.evict is not None:
                self.evict(set(blocks))
        loads = [load for load, _ in failed if load is not None]
        for load in loads:
            self._rates.pop(load.node, None)
        return loads


def _size(cache: Any) -> float:
    """Bytes of a token's KV on one rank."""
    blocks = sum(int(tensor.size) for tensor in cache.kv_cache_tensors) / max(int(cache.num_blocks), 1)
    return blocks / int(cache.kv_cache_groups[0].kv_cache_spec.block_size)
