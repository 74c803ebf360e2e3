"""What the library received, as tensors of a framework that own their memory.

A received tensor lies where the library put it; its memory goes back when the last tensor of its message is collected. No
framework is needed for that: torch and numpy both keep the buffer that they look at, and the buffer keeps the message. A forked
child finds zeros there.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import mmap
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import _abi, _memory, _values
from ._library import Library
from .errors import Incompatible, Unavailable
from .tensors import RawTensor

FRAMEWORKS = ("auto", "torch", "numpy", "raw")
_auto: Optional[str] = None
# message -> the library that it is of; only a forked child asks where its members lie
_live: Dict[int, Library] = {}


class _Message:
    """Frees a message with the last buffer that looks at it."""

    def __init__(self, lib: Library, message: ctypes.c_void_p) -> None:
        self._free: Callable[[int], None] = lib.msg_free
        self._forget: Callable[[Any, None], object] = _live.pop
        self._handle: Optional[int] = None
        handle, message.value = message.value, None  # never with both: it would be freed twice
        self._handle = handle
        _live[handle or 0] = lib

    def give_up(self, message: ctypes.c_void_p) -> None:
        self._forget(self._handle, None)
        handle, self._handle = self._handle, None
        message.value = handle

    def __del__(self) -> None:
        if self._handle is not None:
            self._forget(self._handle, None)
            self._free(self._handle)


def choose(framework: str) -> str:
    """The framework to use; Invalid and Unavailable say which there are. Asked before anything is received."""
    global _auto
    _values.one_of("framework", framework, FRAMEWORKS)
    if framework == "auto":
        if _auto is None:
            _auto = next((f for f in ("torch", "numpy") if importlib.util.find_spec(f) is not None), "raw")
        return _auto
    if framework != "raw" and importlib.util.find_spec(framework) is None:
        raise Unavailable(f'framework is "{framework}", which is not installed: install it, or use framework="raw"')
    return framework


def _torch(dtype: str, shape: Tuple[int, ...], data: Any) -> Any:
    torch = importlib.import_module("torch")
    kind = getattr(torch, dtype, None)
    if kind is None:
        raise Unavailable(f'torch {torch.__version__} has no {dtype}: update it, or receive with framework="raw"')
    if data is None:
        return torch.empty(shape, dtype=kind, device="cpu")  # whatever its default device is
    return torch.frombuffer(data, dtype=kind).reshape(shape)


def _numpy(dtype: str, shape: Tuple[int, ...], data: Any) -> Any:
    numpy = importlib.import_module("numpy")
    kind = {"bool": numpy.bool_}.get(dtype) or getattr(numpy, dtype, None)
    if kind is None:
        try:
            kind = getattr(importlib.import_module("ml_dtypes"), dtype)
        except (ImportError, AttributeError):
            raise Unavailable(f"numpy has no {dtype}, and ml_dtypes with it is not installed: install it, or receive with "
                              'framework="raw"') from None
    if data is None:
        return numpy.empty(shape, dtype=kind)
    return numpy.frombuffer(data, dtype=kind).reshape(shape)


def _raw(dtype: str, shape: Tuple[int, ...], data: Any) -> RawTensor:
    return RawTensor(dtype, shape, memoryview(bytearray()) if data is None else memoryview(data).cast("B"))


_MAKERS: Dict[str, Callable[[str, Tuple[int, ...], Any], Any]] = {"torch": _torch, "numpy": _numpy, "raw": _raw}


def _nbytes(lib: Library, t: _abi.Tensor) -> int:
    nbytes: int = lib.dtype_size(t.dtype)
    for n in t.shape[:t.ndim]:
        nbytes *= n
    return nbytes


def _member(lib: Library, t: _abi.Tensor, owner: _Message, framework: str) -> Any:
    dtype = lib.dtype_name(t.dtype).decode()
    shape = tuple(t.shape[:t.ndim])
    nbytes = _nbytes(lib, t)
    data: Any = None
    if nbytes > 0:
        data = (ctypes.c_ubyte * nbytes).from_address(t.data)
        data._message = owner
    try:
        return _MAKERS[framework](dtype, shape, data)
    except (ValueError, RuntimeError, OverflowError) as error:  # whatever its sender's framework is, this one has no such tensor
        raise Incompatible(f"{framework} has no tensor of {dtype} {shape}: {error}") from None


def tensors(lib: Library, message: ctypes.c_void_p, framework: str) -> List[Any]:
    """The members of a message; None for those that are None. Takes the message over and leaves NULL there, unless it raises."""
    handle = message.value
    owner = _Message(lib, message)
    out: List[Any] = []
    try:
        for i in range(lib.msg_count(handle)):
            t = _abi.opts(_abi.Tensor)
            there = lib.check(lib.msg_tensor(handle, i, ctypes.byref(t))) == 1
            out.append(_member(lib, t, owner, framework) if there else None)
    except BaseException:
        owner.give_up(message)
        raise
    return out


def _pages() -> Iterator[Tuple[int, int]]:
    """The pages of each member that is alive: (from, to)."""
    page, t = mmap.PAGESIZE, _abi.opts(_abi.Tensor)
    for handle, lib in _live.items():
        for i in range(lib.msg_count(handle)):
            if lib.msg_tensor(handle, i, ctypes.byref(t)) == 1 and t.data:
                yield t.data // page * page, -(-(t.data + _nbytes(lib, t)) // page) * page


def _after_fork() -> None:
    """Puts zeros where a child lacks memory. It has what the library had copied out.

    Members that share a page are joined. Those that only lie side by side are not: a child may have one and lack the other.
    """
    gaps: List[Tuple[int, int]] = []
    collecting = gc.isenabled()
    gc.disable()  # a collection would free messages that are being looked at
    pages = sorted(_pages())
    if collecting:
        gc.enable()
    for first, end in pages:
        if gaps and first < gaps[-1][1]:
            gaps[-1] = gaps[-1][0], max(gaps[-1][1], end)
        else:
            gaps.append((first, end))
    taken = [(first, end) for first, end in gaps if not _memory.zeros_in_gap(first, end - first)]
    if taken:
        _memory.zeros_around(taken)


os.register_at_fork(after_in_child=_after_fork)
