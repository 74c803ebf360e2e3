"""Block lists: from what engines keep them in to what the library reads, without a copy where that is possible."""

from __future__ import annotations

import array
import bisect
import ctypes
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

from . import _abi
from ._values import show, view as look
from .errors import Invalid

#: A position of a block list that has no block.
NO_BLOCK = _abi.NO_BLOCK

#: Ids of one group: a list of int, or a buffer of 32-bit integers (array, numpy, memoryview, torch on the CPU).
Ids = Any
#: Ids of group 0, or a sequence with the ids of each group; None there leaves a group out.
BlockLists = Union[Ids, Sequence[Optional[Ids]]]

# (address, how many, the object whose memory it is)
_Place = Tuple[int, int, Any]

_WORDS = frozenset("iIlL")
_OTHERS = frozenset("bBhHqQ")
_NATIVE = {1: "b", 2: "h", 4: "i", 8: "q"}


def _from_list(name: str, ids: Any) -> _Place:
    try:
        words = array.array("I", ids)
    except (TypeError, ValueError, OverflowError):
        words = array.array("I", [_one(name, i, value) for i, value in enumerate(ids)])
    address, count = words.buffer_info()
    return address, count, words


def _one(name: str, position: int, value: Any) -> int:
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise Invalid(f"{name}[{position}] is {show(value)}: must be a block id, an integer") from None
    if not 0 <= number <= NO_BLOCK:
        raise Invalid(f"{name}[{position}] is {show(number)}: must be 0 to 0xffffffff, kvpipe.NO_BLOCK for no block")
    return number


def _numbers(view: memoryview, code: str) -> List[int]:
    """tolist(), also of formats that it does not know, like ctypes' "<Q"."""
    native = _NATIVE[view.itemsize]
    plain: Any = memoryview(view.tobytes())
    out: List[int] = plain.cast(native.upper() if code.isupper() else native).tolist()
    return out


def _from_buffer(name: str, view: memoryview) -> _Place:
    if view.ndim != 1:
        raise Invalid(f"{name} has {view.ndim} dimensions: give the ids of one group as one dimension")
    code = view.format.lstrip("@=<")
    if code not in _WORDS or view.itemsize != 4:
        if code in _WORDS | _OTHERS:
            return _from_list(name, _numbers(view, code))
        raise Invalid(f"{name} is a buffer of format {view.format!r}: must be 32-bit integers")
    if not view.contiguous:
        return _from_list(name, [value & NO_BLOCK for value in _numbers(view, code)])
    if view.nbytes == 0:
        return 0, 0, view
    flat = view.cast("B")
    # Python gives no pointer into a read-only buffer, so its bytes are copied.
    kind = ctypes.c_char * view.nbytes
    held = kind.from_buffer_copy(flat) if view.readonly else kind.from_buffer(flat)
    return ctypes.addressof(held), view.nbytes // 4, held


def _from_tensor(name: str, tensor: Any) -> _Place:
    """torch: has no buffer protocol, but says where its memory is."""
    if tensor.device.type != "cpu":
        raise Invalid(f"{name} is a tensor on {tensor.device}: block ids must be on the CPU")
    if tensor.dim() != 1:
        raise Invalid(f"{name} has {tensor.dim()} dimensions: give the ids of one group as one dimension")
    if str(tensor.dtype) not in ("torch.int32", "torch.uint32"):
        return _from_list(name, tensor.tolist())
    if not tensor.is_contiguous():
        return _from_list(name, [value & NO_BLOCK for value in tensor.tolist()])
    return int(tensor.data_ptr()), int(tensor.numel()), tensor


def _place(name: str, ids: Ids) -> _Place:
    if isinstance(ids, (list, tuple, range)):
        return _from_list(name, ids)
    if hasattr(ids, "data_ptr"):
        return _from_tensor(name, ids)
    view = look(ids)
    if view is not None:
        return _from_buffer(name, view)
    try:
        listed = list(ids)
    except (TypeError, ValueError):  # ValueError: of a memoryview that was released
        raise Invalid(f"{name} is {show(ids)}: must be a list of block ids, or a buffer of 32-bit integers") from None
    return _from_list(name, listed)


def _per_group(blocks: Any) -> bool:
    """Whether there is a list for each group, and not one list: a group's ids have a length, an id has none."""
    if not isinstance(blocks, (list, tuple)) or not blocks:
        return False
    return blocks[0] is None or hasattr(blocks[0], "__len__")


class Packed:
    """Lists as the library reads them; keeps alive what they point to."""

    def __init__(self, blocks: BlockLists, first: int, ntokens: int) -> None:
        #: whether the caller gave one list for each group
        self.grouped = _per_group(blocks)
        lists = list(blocks) if self.grouped else [blocks]
        named = [("blocks[%d]" % g if self.grouped else "blocks", g, ids) for g, ids in enumerate(lists)]
        self._places: List[Tuple[int, _Place]] = [(g, _place(name, ids)) for name, g, ids in named if ids is not None]
        if not self._places and (ntokens > 0 or not self.grouped):
            raise Invalid(f"blocks is {show(blocks)}: no list covers the {ntokens} tokens; leave out single groups, not all")
        if not self.grouped and ntokens == 0 and self._places[0][1][1] == 0:
            self._places = []  # nothing yet: an offer that will be extended
        self.groups = len(lists)
        self.count = len(self._places)
        self.array = (_abi.Blocks * max(self.count, 1))()
        for entry, (group, (address, count, _)) in zip(self.array, self._places):
            entry.group = group
            entry.first_token = first
            entry.ntokens = ntokens
            entry.count = count
            entry.ids = address

    def copy(self) -> "Ids32":
        return Ids32(
            self.grouped,
            self.groups,
            [(group, ctypes.string_at(address, count * 4) if count else b"")
             for group, (address, count, _) in self._places],
        )


class _Spans:
    """A set of ids, given as spans from first to stop. One search tells whether an id is in it, however many spans there are."""

    def __init__(self, spans: Iterable[Tuple[int, int]]) -> None:
        self._firsts: List[int] = []
        self._stops: List[int] = []
        for first, stop in sorted(spans):
            if self._stops and first <= self._stops[-1]:
                self._stops[-1] = max(self._stops[-1], stop)
            else:
                self._firsts.append(first)
                self._stops.append(stop)

    def __len__(self) -> int:
        return len(self._firsts)

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._stops[at]


class Ids32:
    """A take's own copy of its lists: which ids failed must not depend on what the caller does with its own lists meanwhile."""

    def __init__(self, grouped: bool, groups: int, lists: List[Tuple[int, bytes]]) -> None:
        self._grouped = grouped
        self._groups = groups
        self._lists = lists

    def within(self, runs: Sequence[Tuple[int, int, int]]) -> Any:
        """The ids that lie in the runs, in the shape in which the lists were given."""
        out: List[List[int]] = [[] for _ in range(self._groups)]
        for group, data in self._lists:
            spans = _Spans((first, stop) for g, first, stop in runs if g == group)
            if spans:
                out[group] = [i for i in array.array("I", data) if i != NO_BLOCK and i in spans]
        return out if self._grouped else out[0]
