"""From Python's values to C's fields. ctypes cuts off what does not fit; here it is refused, by name."""

from __future__ import annotations

import math
import operator
from typing import Any, Optional, Tuple, Union

from . import _abi
from .errors import Invalid

Key = Union[str, bytes]
Tokens = Union[int, Tuple[int, int]]

_NS = 1_000_000_000
#: of what the daemon is asked to do, as it limits them
_LONGEST = 30 * 86_400


def integer(name: str, value: Any, bits: int = 32) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise Invalid(f"{name} is {value!r}: must be an integer") from None
    if not 0 <= number < 1 << bits:
        raise Invalid(f"{name} is {number}: must be 0 to 2^{bits} - 1")
    return number


def pair(name: str, value: Any) -> Tuple[int, int]:
    try:
        first, second = value
    except (TypeError, ValueError):
        raise Invalid(f"{name} is {value!r}: must be a pair of integers") from None
    return integer(f"{name}[0]", first), integer(f"{name}[1]", second)


def text(name: str, value: Optional[str]) -> Optional[bytes]:
    """A C string, or None for None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Invalid(f"{name} is {value!r}: must be a str")
    if "\0" in value:
        raise Invalid(f"{name} is {value!r}: must not contain NUL")
    return _utf8(name, value)


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Invalid(f"{name} is {value!r}: {error.reason}: give another, or bytes where they will do") from None


def key(value: Key) -> bytes:
    if isinstance(value, str):
        return _utf8("key", value)
    if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
        raise Invalid(f"key is {value!r}: must be str or bytes")
    return binary("key", value) or b""


def binary(name: str, value: Any) -> Optional[bytes]:
    """Bytes, or None for None."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, (bytes, bytearray, memoryview)):
        raise Invalid(f"{name} is {value!r}: must be bytes")
    return bytes(value)


def required(name: str, value: Any) -> bytes:
    data = binary(name, value)
    if not data:
        raise Invalid(f"{name} is missing: give the offer's, offer.token")
    return data


def duration(name: str, seconds: Optional[float]) -> int:
    """Nanoseconds of an operation's time; 0, the library's default, for None."""
    if seconds is None:
        return 0
    ns = wait(name, seconds)
    if ns == 0:
        raise Invalid(f"{name} is {seconds!r}: must be more than 0 seconds, or None for the default")
    if ns == _abi.FOREVER:
        raise Invalid(f"{name} is {seconds!r}: every operation ends; give a finite number of seconds")
    if ns > _LONGEST * _NS:
        raise Invalid(f"{name} is {seconds!r}: at most {_LONGEST} seconds (30 days)")
    return ns


def answer(name: str, seconds: Optional[float]) -> int:
    """Nanoseconds that a caller waits for the daemon's answer; 0 asks without waiting, None is the library's default."""
    return _abi.NOWAIT if seconds == 0 else duration(name, seconds)


def wait(name: str, seconds: Optional[float]) -> int:
    """Nanoseconds that a caller is ready to wait; for None until the operation's own deadline."""
    if seconds is None:
        return _abi.FOREVER
    try:
        value = float(seconds)
    except (TypeError, ValueError):
        raise Invalid(f"{name} is {seconds!r}: must be seconds, or None") from None
    if math.isnan(value) or value < 0:
        raise Invalid(f"{name} is {seconds!r}: must not be negative")
    return int(value * _NS) if value < _abi.FOREVER / _NS else _abi.FOREVER


def tokens(value: Tokens) -> Tuple[int, int]:
    """First token and number of tokens, from n or (start, stop)."""
    if isinstance(value, (tuple, list)):
        start, stop = pair("tokens", value)
        if stop < start:
            raise Invalid(f"tokens is {value!r}: stop must not be below start")
        return start, stop - start
    return 0, integer("tokens", value)
