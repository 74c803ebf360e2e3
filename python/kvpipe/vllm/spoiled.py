"""Blocks that were to be loaded, and are not what they should be, and the requests that trust them. vLLM lets whoever was to load them
compute from the first of them on again, and goes on to have all of them found meanwhile; also if that one goes before it has computed
them. Who has found them computes on, and is believed."""

from __future__ import annotations

from typing import Any, Collection, Dict, Mapping


class Spoiled:
    """Called by the engine's thread alone. block_size: of the engine's one group of layers; with several, vLLM is told of no blocks."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._from: Dict[str, int] = {}  # request that trusts them -> the number of the first of them in its table
        self._tables: Any = None  # request -> its block tables; before vLLM 0.32 unknown
        self._evict: Any = None  # keeps other requests from finding blocks any more

    def __contains__(self, request: str) -> bool:
        return request in self._from

    def bind(self, manager: Any) -> None:
        self._tables, self._evict = manager.get_block_ids, manager.evict_blocks

    def found(self, bad: Collection[int], requests: Mapping[str, Any]) -> None:
        """These blocks are bad. vLLM has said by now how far those that were to load them have got. Nobody finds them any more, nor what
        lies behind them."""
        if not bad or self._tables is None:
            return
        self._evict(set(bad))
        for name, request in requests.items():
            first = next((i for i, block in enumerate(self._tables(name)[0]) if block in bad), None)
            if first is not None:
                self._evict_from(name, first)
                if first * self._block_size < request.num_computed_tokens:
                    self._from[name] = min(first, self._from.get(name, first))

    def allocated(self, request: str) -> None:
        """The request has blocks, and has perhaps found what those that trust them have computed since the step before."""
        bad = {block for name, first in self._from.items() for block in self._tables(name)[0][first:] if block}
        first = next((i for i, block in enumerate(self._tables(request)[0]) if block in bad), None) if bad else None
        if first is not None:
            self._from.setdefault(request, first)

    def step(self) -> None:
        """What those that trust them compute in the step that is about to run is found by nobody either."""
        for name, first in self._from.items():
            self._evict_from(name, first)

    def over(self, request: str) -> bool:
        """The request is finished. Returns whether it trusted them."""
        return self._from.pop(request, None) is not None

    def _evict_from(self, request: str, first: int) -> None:
        """vLLM has block 0 where a window has left a block."""
        self._evict({block for block in self._tables(request)[0][first:] if block})
