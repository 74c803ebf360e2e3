"""Loads that a step waits for before it computes. What is loaded beside other requests is heard of by the next step, and computed
on by the one after; an engine that has no other requests gains nothing by that, and a short load takes less."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from .compat import by_blocks, takes_back, transfer_groups
from .meta import Load
from .params import Source

#: seconds that a load for which a step waits may be expected to take
SHORT = 0.0125
#: seconds that the step waits all the same: computing the prompt takes longer than what a busy machine makes of a short load. Then it
#: is given up.
PATIENCE = 0.1
#: milliseconds that the engine waits before for the producer to say that the KV is there: it has nothing else to do
ANSWER = 2
#: a load, None where it could not even be asked for, and the blocks of its request
_Awaited = Tuple[Optional[Load], Sequence[int]]


class AtOnce:
    """When, and what becomes of steps that waited in vain, for this or for a layer. Called by the engine's thread alone.

    ``possible``: whether this engine does it at all. ``requests``: all that the engine has, by id. ``evict``: has blocks not be found by
    other requests any more; from vLLM 0.32 on, else None."""

    def __init__(self, config: Any, cache: Any, met: Callable[[str, float], None]) -> None:
        self._met = met
        self.evict: Optional[Callable[[Set[int]], None]] = None
        # A load that fails is told by blocks, which cannot always be done, and not to a step that has begun meanwhile.
        self.possible = (config.kv_transfer_config.kv_load_failure_policy == "recompute"
                         and len(transfer_groups(cache)) == 1 and by_blocks(cache)
                         and config.parallel_config.pipeline_parallel_size == 1 and not config.scheduler_config.async_scheduling
                         and takes_back(config))
        self._size = _size(cache) * int(config.parallel_config.tensor_parallel_size) if self.possible else 0.0
        self._rates: Dict[str, float] = {}  # node -> the most bytes a second that it was seen to give
        self.requests: Dict[str, Any] = {}
        self._next: List[_Awaited] = []  # that the next step waits for
        self._last: List[_Awaited] = []  # that the last one did

    def met(self, node: str, rate: float) -> None:
        """A load beside others succeeded. It was heard of late, so the fastest is the nearest to the truth."""
        self._met(node, rate)
        self._rates[node] = max(rate, self._rates.get(node, 0))

    def may(self, source: Source, count: int) -> bool:
        """Whether the step that a request begins in waits for its load of so many tokens. Not where there are others: they would
        wait too, and some find its blocks before it is known that nothing came."""
        rate = self._rates.get(source.node, 0)
        return (self.possible and self.evict is not None and not source.early and len(self.requests) < 2
                and count * self._size <= SHORT * rate)

    @property
    def begins(self) -> bool:
        """Whether the next step waits for any. vLLM has their blocks found from now on, and who finds them trusts that they are filled,
        or computed again by who was to load them, even where that has gone meanwhile."""
        return bool(self._next)

    def begun(self, load: Optional[Load], blocks: Sequence[int]) -> None:
        self._next.append((load, blocks))

    def loads(self, key: str) -> bool:
        """Whether the next step waits for a load of it."""
        return any(load is not None and load.key == key for load, _ in self._next)

    def step(self) -> List[Load]:
        """The next step goes out. Returns the loads that it waits for."""
        self._last, self._next = self._next, []
        return [load for load, _ in self._last if load is not None]

    def failed(self, bad: Set[int]) -> List[Load]:
        """Those that were to fill these blocks, and did not. vLLM has them found by others as soon as they are allocated, and so
        would have them found after their request is gone."""
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
