"""The errors: one class for each reason of ``kvpipe.h``."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Dict, Optional, Type

if TYPE_CHECKING:
    from .completion import Completion


class Reason(enum.IntEnum):
    """``enum kvpipe_reason``; the values never change."""

    OK = 0
    INVALID = 1
    NOT_FOUND = 2
    EXPIRED = 3
    DENIED = 4
    INCOMPATIBLE = 5
    BUSY = 6
    QUOTA = 7
    TIMEOUT = 8
    CANCELLED = 9
    PEER_GONE = 10
    RESTARTED = 11
    UNAVAILABLE = 12
    CORRUPT = 13
    CLOSED = 14


class Error(Exception):
    """The base of all errors of this package. The text says what is wrong and what to do.

    ``reason`` is the code behind the error. ``completion`` is how the operation ended, if the error says that
    an operation failed. It is None if a call was refused or ran into its timeout.
    """

    reason: int = Reason.INVALID

    def __init__(self, message: str = "", completion: Optional["Completion"] = None) -> None:
        super().__init__(message)
        self.completion = completion


class Invalid(Error):
    """An argument is malformed or out of range."""

    reason = Reason.INVALID


class NotFound(Error):
    """No such key, peer, region or operation, or a needed block was not offered."""

    reason = Reason.NOT_FOUND


class Expired(Error):
    """The offer's lease ran out, or the offer was withdrawn or consumed."""

    reason = Reason.EXPIRED


class Denied(Error):
    """Wrong token, another owner's engine, a peer that is not allowed, or no permission for the socket."""

    reason = Reason.DENIED


class Incompatible(Error):
    """Fingerprints, layouts, content digests or versions do not agree."""

    reason = Reason.INCOMPATIBLE


class Busy(Error):
    """A conflicting hold, a key in use, a region with work in flight, or a full queue."""

    reason = Reason.BUSY


class Quota(Error):
    """A limit of the session, the engine or the daemon is reached."""

    reason = Reason.QUOTA


class Timeout(Error):
    """The deadline passed. With ``completion`` it is the operation's own deadline; without, only the call's:
    the operation still runs.
    """

    reason = Reason.TIMEOUT


class Cancelled(Error):
    """Cancelled or withdrawn by its owner."""

    reason = Reason.CANCELLED


class PeerGone(Error):
    """The other engine or daemon died, or its node cannot be reached."""

    reason = Reason.PEER_GONE


class Restarted(Error):
    """This node's daemon restarted while bytes were granted, or since then another worker has replaced one
    that the operation was about, or one of these has given memory up.

    If it was the other node's daemon that ended, the error is PeerGone.
    """

    reason = Reason.RESTARTED


class Unavailable(Error):
    """No library, no daemon, a draining daemon, a rank of this engine or a transport that is not there, or
    invalid memory.
    """

    reason = Reason.UNAVAILABLE


class Corrupt(Error):
    """A checksum did not agree, even after retries, or memory faulted."""

    reason = Reason.CORRUPT


class Closed(Error):
    """The session was closed, belongs to the parent process, or was ended by the daemon."""

    reason = Reason.CLOSED


_BY_REASON: Dict[int, Type[Error]] = {int(c.reason): c for c in Error.__subclasses__()}


def make(reason: int, message: str, completion: Optional["Completion"] = None) -> Error:
    """The error for a reason code, even one of a newer library."""
    found = _BY_REASON.get(reason)
    if found is not None:
        return found(message, completion)
    error = Error(message, completion)
    error.reason = reason
    return error
