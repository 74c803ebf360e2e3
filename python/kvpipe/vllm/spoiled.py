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


class _Trusting(NamedTuple):
    """What a request trusts."""

    first: int  # the number of the first bad block in its table
    table: Sequence[int]  # in the step before; it may have lost it since, and vLLM has had blocks of it found meanwhile


class Spoiled:
    """Called by the engine's thread alone. block_size: of the engine's one group of layers; with several, vLLM is told of no blocks.
    flight: how many steps begin before vLLM hears of the first of them."""

    def __init__(self, block_size: int, flight: int) -> None:
        self._block_size, self._flight = block_size, flight
        self._from: Dict[str, _Trusting] = {}  # requests that trust them
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
                    self._trusts(name, first)
        self._evict(wrong)

    def allocated(self, request: str) -> None:
        """The request has blocks, and has perhaps found what those that trust bad ones have computed since the step before."""
        if self._tables is not None:
            self._young.append(_Young(request, self._flight + 1, []))
        if self._from:
            first = _first(self._tables(request)[0], self._trusted())
            if first is not None and request not in self._from:
                self._trusts(request, first)

    def step(self) -> None:
        """A step is about to run. What those that trust bad blocks compute in it is found by nobody either."""
        if self._young:
            self._young = [young.older(self._tables(young.request)[0]) for young in self._young if young.steps > 1]
        if self._from:
            self._evict(self._trusted())
            self._from = {name: trusting._replace(table=self._tables(name)[0]) for name, trusting in self._from.items()}

    def over(self, request: str) -> bool:
        """The request is finished, and still has its blocks. Returns whether it trusted bad ones. vLLM may have had the last of what it has
        computed found since the step."""
        trusting = self._from.pop(request, None)
        if trusting is not None:
            self._evict(self._bad_of(request, trusting))
        return trusting is not None

    def _trusts(self, request: str, first: int) -> None:
        known = self._from.get(request, _Trusting(first, ()))
        self._from[request] = known._replace(first=min(first, known.first))

    def _bad_of(self, request: str, trusting: _Trusting) -> Set[int]:
        return _behind(self._tables(request)[0], trusting.first) | _behind(trusting.table, trusting.first)

    def _trusted(self) -> Set[int]:
        """What is bad of all that trust bad blocks."""
        return set().union(*(self._bad_of(name, trusting) for name, trusting in self._from.items()))


def _first(table: Sequence[int], bad: Collection[int]) -> Optional[int]:
    """The number of the first block that is bad."""
    return next((i for i, block in enumerate(table) if block in bad), None)


def _behind(table: Sequence[int], first: Optional[int]) -> Set[int]:
    """The blocks from this one on. vLLM has block 0 where a window has left a block."""
    return set(table[first:]) - {0} if first is not None else set()
