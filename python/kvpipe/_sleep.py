"""Regions whose memory is given up for a while: what an engine that sleeps does with its KV."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Iterator, Optional, Tuple

from . import _values
from .errors import Busy, Closed, Error, Timeout, Unavailable

if TYPE_CHECKING:
    from ._session import Session

# What the library takes for the time of a call that was given none.
_DEFAULT_NS = 5_000_000_000


class Sleeper:
    """What Region and AdoptedRegion have in common. Each defines what happens to its pages."""

    id: int
    nbytes: int
    _session: Optional["Session"]
    _valid: bool
    _changing: threading.Lock
    _over: bool  # its session has ended; the thread that is changing it drops it

    def _begin_valid(self) -> None:
        self._valid, self._changing, self._over = True, threading.Lock(), False

    @contextmanager
    def _change(self, seconds: float, late: Error) -> Iterator[bool]:
        """Keeps other threads from changing or dropping the region meanwhile. Waits so long for its turn, then raises late. Yields False when
        there is nothing left to change."""
        if not self._changing.acquire(timeout=seconds):
            if not self._over:
                raise late
            yield False
            return
        try:
            yield True
        finally:
            self._changing.release()
            if self._over:
                self._end()

    @contextmanager
    def _turn(self, what: str, timeout: Optional[float]) -> Iterator[Tuple["Session", float]]:
        """The same for a call that waits for its turn. Yields the session, and what the wait has left of the call's time, in seconds."""
        given = (_values.duration("timeout", timeout) or _DEFAULT_NS) / 1e9
        until = time.monotonic() + given
        late = Timeout(f"{what}: another thread invalidates, revalidates or closes the region, and is not done within {given:g} s: call again")
        with self._change(given, late) as mine:
            if not mine:
                raise Closed("the region is closed")
            yield self._open(), max(until - time.monotonic(), 1e-9)

    def _end(self) -> None:
        """The session has ended: drops the region, unless a thread is changing it. That thread may be about to give pages back or to have
        them, which would then be another mapping's. It is not waited for, as it may be the one that ends the session."""
        self._over = True
        if self._changing.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._changing.release()

    @property
    def registered(self) -> bool:
        """Whether the daemon has the memory, or may have it. False once the region or its session was closed.

        After a close() that raised Timeout it is True, but no operation may use the region any more.
        """
        return self._session is not None

    @property
    def valid(self) -> bool:
        """Whether there is memory behind the region. False from invalidate() to revalidate().

        After one of these that raised Timeout it is what it was before, though the change may have begun.
        """
        return self._valid

    def invalidate(self, timeout: Optional[float] = None) -> None:
        """Gives up the region's content for a while. Its id, its address and the layout stay.

        First, offers and takes of the session's blocks, a scheduler's too, are ended and fenced. They fail
        with Unavailable, and so do new ones until revalidate(). Then the daemon lets go of the memory, which
        counts against no limit any more.

        Memory of Node.alloc() goes back to the system: do not touch it. Other memory is left as it is. Its
        pages may be given back (``MADV_REMOVE``), and must all be there again before revalidate().

        Waits at most ``timeout`` seconds (None: 5). Returns at once if the region is invalid already.

        Raises Timeout (it may have begun: call again), Incompatible (the daemon is too old for this), or
        Unavailable. Then either the region is what it was, since the daemon is away and operations wait for
        it; or it is no longer ``valid``, but the system did not take its pages, as it does not take locked
        ones.
        """
        with self._turn("invalidate", timeout) as (session, left):
            session.invalidate(self.id, left)
            self._valid = False
            self._give_back()

    def revalidate(self, timeout: Optional[float] = None) -> None:
        """Brings an invalid region back: the daemon has it again, and the layout holds. The content is
        undefined.

        Memory of Node.alloc() is allocated again, at its address.

        Waits for the daemon at most ``timeout`` seconds (None: 5). Returns at once if the region is valid.

        Raises Quota (no memory, or a limit of the daemon) or Invalid (pages are missing); the region then
        stays invalid. Raises Unavailable if the daemon is away; the region is then valid here, and comes back
        with the daemon.
        """
        with self._turn("revalidate", timeout) as (session, left):
            try:
                if not self._valid:
                    self._have_back()
                session.revalidate(self.id, left)
            except Unavailable:
                self._valid = True
                raise
            except Error:
                if not self._valid:
                    with suppress(Unavailable):
                        self._give_back()
                raise
            self._valid = True

    def _take_away(self, timeout: Optional[float]) -> None:
        """Unregisters it, unless another thread changes it."""
        busy = Busy("close: another thread invalidates, revalidates or closes the region")
        with self._change(0, busy) as mine:
            if mine and self._session is not None:
                self._session.unregister(self.id, timeout)
            if mine:
                self._drop()

    def _drop(self) -> None:
        """What remains to be done when the daemon does not have it any more."""

    def _open(self) -> "Session":
        if self._session is None:
            raise Closed("the region is closed")
        return self._session

    def _give_back(self) -> None:
        """Gives the pages back, if they are the region's own."""

    def _have_back(self) -> None:
        """Makes those pages present again. Raises Quota."""

    def __repr__(self) -> str:
        state = " closed" if not self.registered else "" if self.valid else " invalid"
        return f"<kvpipe.{type(self).__name__} {self.id:#x} of {self.nbytes} bytes{state}>"
