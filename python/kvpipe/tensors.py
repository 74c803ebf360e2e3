"""Tensors of frameworks, as the library sees them: where their elements lie, of which type.

Nothing here needs a framework: torch and numpy are looked at only when a tensor of theirs is there.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from . import _abi, _values
from ._library import library
from .errors import Invalid, Unavailable


class RawTensor(NamedTuple):
    """A tensor of no framework: what ``framework="raw"`` gives. It can be sent as it is."""

    #: "bfloat16", "float8_e4m3fn", "int64", "bool", ...: torch's and numpy's names
    dtype: str
    shape: Tuple[int, ...]
    #: the elements in C order; any contiguous buffer, a received one is a writable memoryview of bytes
    data: Any

    def __reduce__(self) -> Tuple[Any, ...]:
        """Pickled, it has a copy of the bytes that it looks at: a memoryview is of this process alone."""
        data = bytearray(self.data) if isinstance(self.data, memoryview) else self.data
        return RawTensor, (self.dtype, self.shape, data)

    def __copy__(self) -> "RawTensor":
        return self


Described = Tuple[_abi.Tensor, Any]  # with what must live as long as the struct is used

_FORMATS = {"?": "bool", "e": "float16", "f": "float32", "d": "float64"}


@functools.lru_cache(maxsize=None)
def _parse(dtype: str) -> int:
    try:
        name = dtype.encode()
    except UnicodeEncodeError:
        return 0
    number: int = 0 if b"\0" in name else library().dtype_parse(name)  # C would read up to the NUL
    return number


def _number(what: str, dtype: str) -> int:
    number = _parse(dtype)
    if number == 0:
        raise Invalid(f"{what}: dtype {_values.show(dtype)} cannot be sent: bool, (u)int8 to 64, float16, bfloat16, float32, float64 and "
                      "float8 types can; view it as one of these, or as uint8")
    return number


def _dimensions(what: str, shape: Sequence[int]) -> None:
    if len(shape) > _abi.MAX_DIMS:
        raise Invalid(f"{what}: the tensor has {len(shape)} dimensions: at most {_abi.MAX_DIMS}")


def _struct(what: str, dtype: str, shape: Sequence[int], address: int, strides: Optional[Sequence[int]] = None) -> _abi.Tensor:
    _dimensions(what, shape)
    t = _abi.opts(_abi.Tensor, dtype=_number(what, dtype), ndim=len(shape), data=address)
    t.shape[:len(shape)] = list(shape)
    if strides is not None:
        t.strides[:len(strides)] = list(strides)
        t.flags = _abi.TENSOR_STRIDED
    return t


def _torch(what: str, t: Any) -> Described:
    if t.device.type != "cpu":
        raise Unavailable(f"{what}: the tensor is on {t.device}, which this build does not support: pass tensor.cpu()")
    if getattr(t, "is_nested", False):  # whatever it calls its layout
        raise Invalid(f"{what}: a nested tensor cannot be sent: send those that it is of, or torch.nested.to_padded_tensor(tensor, 0)")
    if str(t.layout) != "torch.strided":
        raise Invalid(f"{what}: the tensor's layout is {t.layout}: must be torch.strided; pass tensor.to_dense()")
    t = t.detach().resolve_neg()
    size = t.element_size()
    return _struct(what, str(t.dtype)[len("torch."):], t.shape, t.data_ptr(), [s * size for s in t.stride()]), t


def _numpy(what: str, a: Any) -> Described:
    masked = sys.modules.get("numpy.ma")  # asking numpy would import it, and a child forked meanwhile would wait for that for ever
    if isinstance(a, getattr(masked, "MaskedArray", ())):
        raise Invalid(f"{what}: a masked array cannot be sent, its mask would be lost: send a.filled(value), or a.data and the mask")
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return _struct(what, a.dtype.name, a.shape, a.ctypes.data, a.strides), a


def _address(view: memoryview) -> Tuple[int, Any]:
    """Where the bytes of a contiguous buffer lie, and what keeps them there."""
    if view.nbytes == 0:
        return 0, None
    if view.readonly:  # ctypes gives no address of these, except of a bytes object
        data = view.obj if isinstance(view.obj, bytes) and len(view.obj) == view.nbytes else bytes(view)
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, data
    held = (ctypes.c_ubyte * view.nbytes).from_buffer(view)
    return ctypes.addressof(held), held


def _raw(what: str, t: RawTensor) -> Described:
    view = _values.view(t.data)
    if view is None:
        raise Invalid(f"{what}: data is {type(t.data).__name__}: must be a buffer that is not released")
    if not view.c_contiguous:
        raise Invalid(f"{what}: the buffer of a RawTensor must be contiguous")
    if not isinstance(t.dtype, str):
        raise Invalid(f"{what}: dtype is {_values.show(t.dtype)}: must be a name, such as 'bfloat16'")
    try:
        shape = tuple(t.shape)
    except (TypeError, ValueError, NotImplementedError):  # the last one is a memoryview's
        raise Invalid(f"{what}: shape is {_values.show(t.shape)}: must be a tuple of integers") from None
    _dimensions(what, shape)
    shape = tuple(_values.integer(f"{what}: shape[{i}]", n, 63) for i, n in enumerate(shape))
    need: int = library().dtype_size(_number(what, t.dtype))
    for n in shape:
        need *= n
    if need != view.nbytes:
        raise Invalid(f"{what}: a RawTensor of {t.dtype} {shape} has {need} bytes, its buffer {view.nbytes}")
    address, held = _address(view)
    return _struct(what, t.dtype, shape, address), held


def _buffer(what: str, view: memoryview) -> Described:
    order, form = (view.format[:1], view.format[1:]) if view.format[:1] in ("@", "=", "<", ">", "!") else ("", view.format)
    if view.itemsize > 1 and order in ((">", "!") if sys.byteorder == "little" else ("<",)):
        raise Invalid(f"{what}: a buffer of format {view.format!r} has the bytes of its elements in the other order: turn them "
                      "round; numpy.asarray(buffer) can be sent as it is")
    dtype = _FORMATS.get(form)
    if dtype is None and len(form) == 1 and form in "bBhHiIlLqQnNc":
        dtype = f"{'u' if form in 'BHILQNc' else ''}int{8 * view.itemsize}"
    if dtype is None:
        raise Invalid(f"{what}: a buffer of format {view.format!r} cannot be sent: wrap it in RawTensor(dtype, shape, buffer)")
    shape = view.shape or ()
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    address, held = _address(view)
    return _struct(what, dtype, shape, address), held


def describe(what: str, value: Any) -> Described:
    """The struct for any tensor: torch's, numpy's, RawTensor, or a buffer (bytes, array.array, memoryview)."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")  # perhaps in part: another thread may be importing them
    if isinstance(value, getattr(torch, "Tensor", ())):
        return _torch(what, value)
    if isinstance(value, (getattr(numpy, "ndarray", ()), getattr(numpy, "generic", ()))):
        return _numpy(what, sys.modules["numpy"].asanyarray(value))
    if isinstance(value, RawTensor):
        return _raw(what, value)
    view = _values.view(value)
    if view is None:
        raise Invalid(f"{what}: {type(value).__name__} is no tensor: give one of torch or numpy, a RawTensor, a buffer that is not "
                      "released, or None")
    return _buffer(what, view)


def describe_or_none(what: str, value: Any) -> Tuple[Any, Any]:
    """A pointer for the library: NULL for None."""
    if value is None:
        return None, None
    struct, held = describe(what, value)
    return ctypes.pointer(struct), held
