"""Completions: how operations end, as poll() and wait() report them."""

from __future__ import annotations

import ctypes
import enum
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Tuple

from . import _abi, errors

if TYPE_CHECKING:
    from .operation import Operation

_RUN = struct.Struct("=3I")  # group, first, count


class Status(enum.IntEnum):
    """``enum kvpipe_status``. The first three are terminal: each operation has exactly one of them."""

    DONE = 1
    FAILED = 2
    CANCELLED = 3
    RELEASED = 4
    QUARANTINED = 5


class Run(NamedTuple):
    """Block ids first .. stop - 1 of a group."""

    group: int
    first: int
    stop: int


class Completion(NamedTuple):
    """One completion, as plain values: it stays valid for ever. A pickled one has no ``op``, which belongs to
    this process.

    - ``tag``: as given to offer() or take(); scheduler and ranks see the same.
    - ``op``: the Offer, Take or Operation of this node. None if the engine's scheduler submitted it, or if
      the program no longer holds it.
    - ``status``, ``reason``, ``message``: how it ended, why, and in words.
    - ``rank``: the rank that this is about, tp + pp * tp_world; 0xffffffff for a scheduler.
    - ``failed``: with FAILED, runs of destination blocks whose content must not be used. CANCELLED names
      none; no block's content may be used.
    - ``released``: True when nothing touches the memory any more. If False, exactly one RELEASED completion
      follows, from poll(). If the operation has told of it already (``released``, wait_released(), cancel(),
      withdraw()), poll() may not.
    - ``bytes``: for the session that asked, those of all ranks. For others: of a take, bytes moved for this
      rank; of an offer, 0.
    - ``op_id``: node-wide id, the same for every session concerned.
    - ``epoch``: the daemon's incarnation.
    """

    tag: int
    op: Optional["Operation"]
    status: int
    reason: int
    rank: int
    failed: Tuple[Run, ...]
    released: bool
    bytes: int
    message: str
    op_id: int
    epoch: int

    @property
    def terminal(self) -> bool:
        """Whether the operation ended with this completion: DONE, FAILED or CANCELLED. QUARANTINED and
        RELEASED come later.
        """
        return self.status in (Status.DONE, Status.FAILED, Status.CANCELLED)

    def error(self) -> Optional[errors.Error]:
        """What wait() would raise; None if the operation did what was asked."""
        if self.status not in (Status.FAILED, Status.CANCELLED):
            return None
        reason = self.reason or errors.Reason.CANCELLED
        return errors.make(reason, self.message, self)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Completion, tuple(self._replace(op=None))

    def __copy__(self) -> "Completion":
        return self

    def __deepcopy__(self, memo: Any) -> "Completion":
        return self


def _name(kind: Any, value: int) -> int:
    """The enum's member, or the number if only a newer library has a name for it."""
    try:
        number: int = kind(value)
    except ValueError:
        return value
    return number


def read(raw: _abi.Completion, op: Optional["Operation"]) -> Completion:
    """Copies a C completion. Each pointer is followed once and in C, so that no other call comes in between (_unread.py)."""
    failed: Tuple[Run, ...] = ()
    if raw.nfailed:
        runs = ctypes.string_at(raw.failed, raw.nfailed * _RUN.size)
        failed = tuple(Run(group, first, first + count) for group, first, count in _RUN.iter_unpack(runs))
    return Completion(
        tag=raw.tag,
        op=op,
        status=_name(Status, raw.status),
        reason=_name(errors.Reason, raw.reason),
        rank=raw.rank,
        failed=failed,
        released=raw.status == Status.RELEASED
        or (raw.status != Status.QUARANTINED and not raw.flags & _abi.C_MORE),
        bytes=raw.bytes,
        message=(raw.message or b"").decode("utf-8", "replace"),
        op_id=raw.op_id,
        epoch=raw.epoch,
    )
