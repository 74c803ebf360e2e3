"""The program's own memory as a region: where it lies, and what must not happen to it meanwhile."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from . import _abi, _values
from ._sleep import Sleeper
from .errors import Invalid, Unavailable

if TYPE_CHECKING:
    from ._session import Session


class AdoptedRegion(Sleeper):
    """Memory of the program's own that the daemon may read and write, from Node.adopt().

    The memory is used through the object that it belongs to. That object is kept alive until close() or the
    end of the session. It must never be resized, not even afterwards: see Node.adopt().

    - ``id``: names the region in a layout.
    - ``nbytes``, ``address``: the object's bytes.
    - ``memory``: the object; None after the end.
    - ``registered``: True until close().
    - ``valid``: False from invalidate() to revalidate().
    """

    id: int
    nbytes: int
    address: int
    memory: Any
    _held: Any
    _session: Optional["Session"]

    def __init__(self) -> None:
        raise TypeError("adopted regions come from Node.adopt()")

    def close(self, timeout: Optional[float] = None) -> None:
        """Takes the memory away from the daemon. Operations that use it are ended and fenced first.

        Waits for that at most ``timeout`` seconds (None: 5). The object stays as it is. It may be adopted
        again, and must still not be resized.

        Raises Timeout: it may have begun, so that new operations are refused; call again. Raises Busy, or
        Unavailable (the daemon is away and not back in time): nothing has changed.
        """
        self._take_away(timeout)

    def _drop(self) -> None:
        self._session = self._held = self.memory = None

    def _forked(self) -> None:
        """In a child: it shares the memory, but not the region."""
        self._drop()
        self._begin_valid()


#: address, bytes, and what keeps the object from moving
_Place = Tuple[int, int, Any]


def _tensor(tensor: Any) -> _Place:
    if tensor.device.type != "cpu":
        raise Unavailable(f"adopt: the tensor is on {tensor.device}: this build adopts memory of the CPU alone: move it there, with .cpu()")
    if not tensor.is_contiguous():
        raise Invalid("adopt: the tensor is not contiguous: adopt the one that it is a view of")
    return int(tensor.data_ptr()), int(tensor.numel()) * int(tensor.element_size()), tensor


def _array(array: Any, interface: Dict[str, Any]) -> _Place:
    """numpy: some of its types, like bfloat16, have no buffer protocol."""
    address, readonly = interface["data"]
    if readonly:
        raise Invalid("adopt: the array is read-only, and takes write there: adopt a copy of it")
    if interface.get("strides") is not None:
        raise Invalid("adopt: the array is not C-contiguous: adopt the one that it is a view of")
    return int(address), int(array.nbytes), array


def _buffer(memory: Any) -> _Place:
    view = _values.view(memory)
    if view is None:
        raise Invalid(f"adopt: memory is {_values.show(memory)}: must be a tensor, an array or a buffer like bytearray")
    if view.readonly:
        raise Invalid("adopt: the buffer is read-only, and takes write there: adopt one that can be written, like bytearray")
    if not view.c_contiguous:
        raise Invalid("adopt: the buffer is not contiguous: adopt the one that it is a view of")
    if not view.nbytes:
        return 0, 0, view
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes, view


def _place(memory: Any) -> _Place:
    if hasattr(memory, "data_ptr"):
        return _tensor(memory)
    interface = getattr(memory, "__array_interface__", None)
    if isinstance(interface, dict) and isinstance(interface.get("data"), tuple) and hasattr(memory, "nbytes"):  # else it says no address
        return _array(memory, interface)
    return _buffer(memory)


def adopt(session: "Session", memory: Any, quiesced: bool) -> AdoptedRegion:
    """Adopts the object's memory in that session."""
    address, nbytes, held = _place(memory)
    if nbytes == 0:
        raise Invalid("adopt: the memory has no bytes: adopt one that has at least 1")
    opts = _abi.opts(_abi.AdoptOpts, addr=address, nbytes=nbytes, flags=_abi.ADOPT_QUIESCED if quiesced else 0)
    number = ctypes.c_uint64()
    region = AdoptedRegion.__new__(AdoptedRegion)
    region._begin_valid()
    with session as handle, session.making(handle, number):
        session.lib.check(session.lib.mem_adopt(handle, ctypes.byref(opts), ctypes.byref(number)))
        region.id, region.nbytes, region.address = number.value, nbytes, address
        region.memory, region._held, region._session = memory, held, session
        session.regions[region.id] = region
    return region
