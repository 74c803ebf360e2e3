"""Blocks that were to be loaded, and are not what they should be, and the requests that trust them. vLLM lets whoever was to load them
compute from the first of them on again, and goes on to have all of them found meanwhile; also if that one goes before it has computed
them. Who has found them computes on, and is believed."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set


class _Young(NamedTuple):
    """What a request has that began a few steps ago. It may lose that before it is known what has failed."""

    request: str
    steps: int  # to come until that is known
    table: List[int]

    def older(self, now: List[int]) -> "_Young":
        """now: its table, which has grown unless it lost all and began again."""
        return self._replace(steps=self.steps - 1, table=now if now[:len(self.table)] == self.table else self.table)


class Spoiled:
    """Called by the engine's thread alone. block_size: of the engine's one group of layers; with several, vLLM is told of no blocks.
    flight: how many steps begin before vLLM hears of the first of them."""

    def __init__(self, block_size: int, flight: int) -> None:
        self._block_size, self._flight = block_size, flight
        self._from: Dict[str, int] = {}  # request that trusts them -> the number of the first of them in its table
        self._young: List[_Young] = []
        self._tables: Any = None  # request -> its block tables; before vLLM 0.32 unknown
        self._evict: Any = None  # keeps other requests from finding blocks any more

    def __contains__(self, request: str) -> bool:
        return request in self._from

    def bind(self, manager: Any) -> None:
        self._tables, self._evict = manager.get_block_ids, manager.evict_blocks

    def found(self, bad: Collection[int], requests: Mapping[str, Any]) -> None:
        """These blocks are bad, and so is what lies behind them: nobody finds it any more. requests: by the order in which they came. vLLM
        has said by now how far those that were to load the blocks have got."""
        if not bad or self._tables is None:
            return
        wrong = set(bad)
        for young in self._young:
            wrong |= _behind(young.table, _first(young.table, bad))
        for name, request in requests.items():
            table = self._tables(name)[0]
            first = _first(table, wrong)
            if first is not None:
                wrong |= _behind(table, first)
                if first * self._block_size < request.num_computed_tokens:
                    self._from[name] = min(first, self._from.get(name, first))
        self._evict(wrong)

    def allocated(self, request: str) -> None:
        """The request has blocks, and has perhaps found what those that trust bad ones have computed since the step before."""
        if self._flight > 1 and self._tables is not None:
            self._young.append(_Young(request, self._flight + 1, []))
        if self._from:
            first = _first(self._tables(request)[0], self._trusted())
            if first is not None:
                self._from.setdefault(request, first)

    def step(self) -> None:
        """A step is about to run. What those that trust bad blocks compute in it is found by nobody either."""
        if self._young:
            self._young = [young.older(self._tables(young.request)[0]) for young in self._young if young.steps > 1]
        if self._from:
            self._evict(self._trusted())

    def over(self, request: str) -> bool:
        """The request is finished. Returns whether it trusted bad blocks."""
        return self._from.pop(request, None) is not None

    def _trusted(self) -> Set[int]:
        """What is bad of all that trust bad blocks."""
        return set().union(*(_behind(self._tables(name)[0], first) for name, first in self._from.items()))


def _first(table: Sequence[int], bad: Collection[int]) -> Optional[int]:
    """The number of the first block that is bad."""
    return next((i for i, block in enumerate(table) if block in bad), None)


def _behind(table: Sequence[int], first: Optional[int]) -> Set[int]:
    """The blocks from this one on. vLLM has block 0 where a window has left a block."""
    return set(table[first:]) - {0} if first is not None else set()
