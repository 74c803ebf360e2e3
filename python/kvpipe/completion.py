"""Completions: how operations end, as poll() and wait() give them out."""

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
    """One completion. Plain values: it stays valid for ever. Pickled, it has no ``op``, which is of this process alone.

    - ``tag``: what offer() or take() was given; scheduler and ranks see the same.
    - ``op``: the Offer, Take or Operation of this node; None when the engine's scheduler submitted it, or when the
      program no longer holds it.
    - ``status``, ``reason``, ``message``: how it ended, why, and in words.
    - ``rank``: the rank that this is about, tp + pp * tp_world; 0xffffffff for a scheduler.
    - ``failed``: of FAILED, runs of destination blocks whose content must not be used. After CANCELLED, which names none, no block's may be.
    - ``released``: True when nothing touches the memory any more. False: exactly one RELEASED completion follows, from poll(); who
      heard of it from the operation (its ``released``, wait_released(), cancel(), withdraw()) may not hear of it there as well.
    - ``bytes``: of a take, bytes moved for this rank, of all ranks for the session that asked; of an offer, those of all ranks
      for the session that asked, and 0 for others.
    - ``op_id``: node-wide id, the same for every session concerned. ``epoch``: the daemon's incarnation.
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
        """Whether the operation has ended with it: DONE, FAILED or CANCELLED. QUARANTINED and RELEASED come later."""
        return self.status in (Status.DONE, Status.FAILED, Status.CANCELLED)

    def error(self) -> Optional[errors.Error]:
        """What wait() would raise, or None when the operation did what was asked."""
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
    """The enum's member, or the number that a newer library knows a name for."""
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
