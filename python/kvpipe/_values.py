"""From Python's values to C's fields. ctypes cuts off what does not fit; here it is refused, by name."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any, Iterable, Optional, Tuple, Union

from . import _abi
from .errors import Invalid

Key = Union[str, bytes]
Tokens = Union[int, Tuple[int, int]]

_NS = 1_000_000_000
#: seconds: the daemon accepts no longer times
_LONGEST = 30 * 86_400
_SHOWN = 60


def show(value: Any) -> str:
    """A value in the text of an error: at most 60 characters, of whatever it is."""
    try:
        said = repr(value)
    except Exception:  # an integer of more than 4,300 digits, or a class of the caller's
        said = f"<{type(value).__name__}>"
    return said if len(said) <= _SHOWN else said[:_SHOWN - 3] + "..."


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise Invalid(f"{name} is {show(value)}: must be one of {', '.join(names)}")
    return value


def view(value: Any) -> Optional[memoryview]:
    """What a buffer holds; None for what is no buffer, or was released or closed."""
    try:
        return memoryview(value)
    except (TypeError, ValueError, BufferError):
        return None


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise Invalid(f"{name} is {show(value)}: must be an integer") from None


def integer(name: str, value: Any, bits: int = 32) -> int:
    number = _whole(name, value)
    if not 0 <= number < 1 << bits:
        raise Invalid(f"{name} is {show(number)}: must be 0 to 2^{bits} - 1")
    return number


def count(name: str, value: Any, most: int, said: str) -> int:
    """A number from 1 to most; said: how most is written in the error."""
    number = _whole(name, value)
    if not 1 <= number <= most:
        raise Invalid(f"{name} is {show(number)}: must be 1 to {said}")
    return number


def flag(name: str, value: Any) -> bool:
    try:
        return bool(value)
    except (TypeError, ValueError, RuntimeError):  # an array or tensor has no truth
        raise Invalid(f"{name} is {show(value)}: must be True or False") from None


def pair(name: str, value: Any, bits: int = 32) -> Tuple[int, int]:
    try:
        first, second = value
    except (TypeError, ValueError, NotImplementedError):  # the last one is a memoryview's
        raise Invalid(f"{name} is {show(value)}: must be a pair of integers") from None
    return integer(f"{name}[0]", first, bits), integer(f"{name}[1]", second, bits)


def text(name: str, value: Optional[str]) -> Optional[bytes]:
    """A C string, or None for None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Invalid(f"{name} is {show(value)}: must be a str")
    if "\0" in value:
        raise Invalid(f"{name} is {show(value)}: must not contain NUL")
    return _utf8(name, value)


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Invalid(f"{name} is {show(value)}: {error.reason}: give another, or bytes where they will do") from None


def key(value: Key) -> bytes:
    if isinstance(value, str):
        return _utf8("key", value)
    if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
        raise Invalid(f"key is {show(value)}: must be str or bytes")
    return binary("key", value) or b""


def binary(name: str, value: Any) -> Optional[bytes]:
    """Bytes, or None for None."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, (bytes, bytearray, memoryview)):
        raise Invalid(f"{name} is {show(value)}: must be bytes")
    try:
        return bytes(value)
    except ValueError:  # a memoryview that was released
        raise Invalid(f"{name} is {show(value)}: must be bytes that are still there") from None


def _hidden(value: Any) -> Optional[bytes]:
    """A token, or None for None. Whatever is given may be a secret, so no error shows it, not even in its context."""
    with contextlib.suppress(Invalid):
        return binary("token", value)
    if isinstance(value, memoryview):
        raise Invalid("token is a memoryview that was released: must be bytes that are still there")
    raise Invalid(f"token is a {type(value).__name__}: must be bytes, as offer.token is (bytes.fromhex() for one that came as text)")


def secret(value: Any) -> Optional[bytes]:
    """A token, or None for None."""
    data = _hidden(value)
    if data is not None and not data:  # to the library it would be none
        raise Invalid("token is empty: must be 16 to 32 bytes, or None")
    return data


def required_secret(value: Any) -> bytes:
    data = _hidden(value)
    if not data:
        raise Invalid("token is missing: give the offer's, offer.token")
    return data


def duration(name: str, seconds: Optional[float]) -> int:
    """Nanoseconds of an operation's time; 0, the library's default, for None."""
    if seconds is None:
        return 0
    ns = wait(name, seconds)
    if ns == 0:
        raise Invalid(f"{name} is {show(seconds)}: must be more than 0 seconds, or None for the default")
    if ns == _abi.FOREVER:
        raise Invalid(f"{name} is {show(seconds)}: every operation ends; give a finite number of seconds")
    if ns > _LONGEST * _NS:
        raise Invalid(f"{name} is {show(seconds)}: at most {_LONGEST} seconds (30 days)")
    return ns


def answer(name: str, seconds: Optional[float]) -> int:
    """Nanoseconds that a caller waits for the daemon's answer; 0 asks without waiting, None is the library's default."""
    if seconds is not None and wait(name, seconds) == 0 and seconds == 0:
        return _abi.NOWAIT
    return duration(name, seconds)


def wait(name: str, seconds: Optional[float]) -> int:
    """Nanoseconds that a caller is ready to wait; for None until the operation's own deadline."""
    if seconds is None:
        return _abi.FOREVER
    try:
        value = float(seconds)
    except OverflowError:  # an integer beyond all floats
        value = math.inf if seconds > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):  # the last one is torch's
        raise Invalid(f"{name} is {show(seconds)}: must be seconds, or None") from None
    if math.isnan(value) or value < 0:
        raise Invalid(f"{name} is {show(seconds)}: must be 0 or more")
    return int(value * _NS) if value < _abi.FOREVER / _NS else _abi.FOREVER


def tokens(value: Tokens) -> Tuple[int, int]:
    """First token and number of tokens, from n or (start, stop)."""
    if isinstance(value, (tuple, list)):
        start, stop = pair("tokens", value)
        if stop < start:
            raise Invalid(f"tokens is {show(value)}: stop must not be below start")
        return start, stop - start
    return 0, integer("tokens", value)
