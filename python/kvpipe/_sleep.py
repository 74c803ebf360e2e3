"""Regions whose memory is given up for a while: what an engine that sleeps does with its KV."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Optional

from .errors import Busy, Closed, Error, Unavailable

if TYPE_CHECKING:
    from ._session import Session


class Sleeper:
    """What Region and AdoptedRegion have in common. Each says what happens to its pages."""

    id: int
    _session: Optional["Session"]
    _valid: bool
    _changing: threading.Lock

    def _begin_valid(self) -> None:
        self._valid, self._changing = True, threading.Lock()

    @property
    def valid(self) -> bool:
        """Whether there is memory behind the region: False from invalidate() to revalidate()."""
        return self._valid

    def invalidate(self, timeout: Optional[float] = None) -> None:
        """Gives up what is in the region for a while. Its id, its address and the layout stay.

        Offers and takes of the session's blocks, a scheduler's too, are ended and fenced first: they fail with
        Unavailable, as new ones do until revalidate(). Then the daemon lets go of the memory, which counts against no limit
        any more. What Node.alloc() made goes back to the system; do not touch it. Other memory is left as it is: its pages
        may be given back (``MADV_REMOVE``), and must all be there again before revalidate().

        Waits at most ``timeout`` seconds (None: 5). Raises Timeout, which may have begun it: call it again; Incompatible when
        the daemon is older than this. Of a region that is invalid it returns at once.
        """
        with self._changing:
            self._open().invalidate(self.id, timeout)
            self._valid = False
            self._give_back()

    def revalidate(self, timeout: Optional[float] = None) -> None:
        """Ends that: memory of Node.alloc() is allocated again at its address, the daemon has the region again, and the
        layout holds. What is in it is undefined.

        Waits for the daemon at most ``timeout`` seconds (None: 5). Raises Quota when there is no memory, or too little by the
        daemon's limits, and Invalid when pages are missing: then the region stays invalid. Unavailable: the daemon is away;
        the region is valid here, and comes back with it. Of a region that is valid it returns at once.
        """
        with self._changing:
            session = self._open()
            try:
                if not self._valid:
                    self._have_back()
                session.revalidate(self.id, timeout)
            except Unavailable:
                self._valid = True
                raise
            except Error:
                if not self._valid:
                    self._give_back()
                raise
            self._valid = True

    def _take_away(self, timeout: Optional[float]) -> None:
        """Unregisters it, unless another thread is about to give its pages back or to have them: they would be another mapping's."""
        if not self._changing.acquire(blocking=False):
            raise Busy("close: another thread invalidates, revalidates or closes the region")
        try:
            if self._session is not None:
                self._session.unregister(self.id, timeout)
            self._drop()
        finally:
            self._changing.release()

    def _drop(self) -> None:
        """What remains to be done when the daemon does not have it any more."""

    def _open(self) -> "Session":
        if self._session is None:
            raise Closed("the region is closed")
        return self._session

    def _give_back(self) -> None:
        """The pages, if they are the region's own."""

    def _have_back(self) -> None:
        """Raises Quota."""
