"""One session of the library, and who may use its handle when.

The C handle must not be used while or after another thread closes it; Python's callers need not know that. Every call
enters the session, and close() waits until those inside have left. Calls that wait do so in slices (operation.py), so
that close() and Ctrl-C are heard.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Union

from . import _said, _values
from ._library import Library
from ._unread import keep, unread
from .errors import Closed

if TYPE_CHECKING:
    from ._end import End
    from .adopted import AdoptedRegion
    from .aio import Listener
    from .operation import Operation
    from .region import Region

_CLOSED = "the session is closed: connect again"
_FORKED = "the session belongs to the parent process: connect again after fork()"
# How long kvpipe_close() waits for the fence. One that returns sooner has it.
_FENCE_SECONDS = 5.0
# How long the end of the interpreter waits for other threads' calls.
_EXIT_SECONDS = 1.0

_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()
# The thread that ends the interpreter, once it does.
_exiting: Optional[int] = None


class Session:
    """The handle, what was made with it, and the calls under way. ``with session as handle`` enters it."""

    def __init__(self, lib: Library, handle: int, free: Optional[Callable[[int], None]] = None, why: str = _CLOSED) -> None:
        """free: what closes the handle, and why: what to say once it is closed, when it is not a session's own."""
        self.lib = lib
        self._free: Callable[[int], None] = free or lib.close
        self.regions: Dict[int, Union["Region", "AdoptedRegion"]] = {}
        #: operations that the program still holds
        self.operations: "weakref.WeakValueDictionary[int, Operation]" = weakref.WeakValueDictionary()
        #: ids of released operations that it does not hold any more, and whose completions it has seen: the library
        #: forgets uncollected completions with their operation; appended to by __del__, which must not lock
        self.dropped: Deque[int] = deque()
        #: held from a submission until its operation is in the table
        self.submitting = threading.RLock()
        #: event loop -> who listens there
        self.listeners: Dict[Any, "Listener"] = {}
        self._ends: "weakref.WeakSet[End]" = weakref.WeakSet()  # the library closes these with the handle
        self._handle: Optional[int] = handle
        self._late: Optional[int] = None  # the handle, when whoever is inside has to close it
        self._why = why
        self._inside: List[int] = []  # threads; one may be there twice
        self._changed = threading.Condition(threading.RLock())
        _sessions.add(self)

    # Without a lock, as every call comes through here: who enters says so and then looks at the handle, close() takes the
    # handle and then looks who is inside.

    def __enter__(self) -> int:
        self._inside.append(threading.get_ident())
        if unread.raws is not None:  # in a signal handler, or by the garbage collector
            keep(unread.raws)
        _said.enter(self.lib)
        handle = self._handle
        if handle is not None:
            return handle
        self.__exit__()
        raise Closed(self._why)

    def __exit__(self, *_: object) -> None:
        self._inside.remove(threading.get_ident())
        _said.leave(self.lib)
        if self._handle is None:
            self._left()
        _stay_at_exit()

    def _left(self) -> None:
        """Tells close(), or does what it could not wait for."""
        late = None
        with self._changed:
            self._changed.notify_all()
            if not self._inside:
                late, self._late = self._late, None
        if late is not None:
            self._finish(late)

    def _finish(self, handle: int) -> None:
        """Closes the handle. The library wakes threads that wait at the session's ends, but no event loop: their descriptors are gone."""
        with _said.call(self.lib):
            self._free(handle)
        with self._changed:
            ends = list(self._ends)
        for end in ends:
            end._wake()

    def has(self, end: "End") -> None:
        """An end was opened beside the session, and is closed with it."""
        with self._changed:
            self._ends.add(end)

    @property
    def closed(self) -> bool:
        return self._handle is None

    def reap(self, handle: int) -> None:
        while self.dropped:
            try:
                self.lib.op_free(handle, self.dropped.popleft())
            except IndexError:  # another thread was faster
                return

    def unregister(self, region: int, timeout: Optional[float]) -> None:
        """Takes a region away from the daemon. The session's end has done that already when it came first."""
        ns = _values.duration("timeout", timeout)
        try:
            with self as handle:
                self.lib.check(self.lib.mem_unregister(handle, region, ns))
        except Closed:
            pass
        self.regions.pop(region, None)

    def invalidate(self, region: int, timeout: Optional[float]) -> None:
        """Has the daemon let go of a region's memory, and keep its name."""
        ns = _values.duration("timeout", timeout)
        with self as handle:
            self.lib.check(self.lib.mem_invalidate(handle, region, ns))

    def revalidate(self, region: int, timeout: Optional[float]) -> None:
        """Gives the region's memory, which is there again, to the daemon."""
        ns = _values.duration("timeout", timeout)
        with self as handle:
            self.lib.check(self.lib.mem_revalidate(handle, region, ns))

    def close(self, patience: Optional[float] = None) -> None:
        """Ends the session. patience: seconds that other threads' calls get to leave; None, as long as they need.

        The last one to leave closes the handle when that is not enough, and when the calling thread is inside itself:
        in a signal handler, or by the garbage collector.
        """
        me = threading.get_ident()
        with self._changed:
            handle, self._handle = self._handle, None
            if handle is None:
                return
            alone = self._changed.wait_for(lambda: all(thread == me for thread in self._inside), patience)
            # Who came since finds no handle, and need not be waited for.
            if self._inside and (me in self._inside or not alone):
                self._late, handle = handle, None
        operations = list(self.operations.values())
        for operation in operations:
            operation._abandon(Closed("the session was closed while the operation ran"))
        if handle is not None:
            began = time.monotonic()
            self._finish(handle)
            if time.monotonic() - began < _FENCE_SECONDS:
                for operation in operations:
                    operation._free()
        for region in list(self.regions.values()):
            region._end()
        self.regions.clear()

    def _forked(self) -> None:
        """In a child. Locks may be held by threads that are not here; the handle is left alone for the same reason."""
        self._changed = threading.Condition(threading.RLock())
        self.submitting = threading.RLock()
        self._inside = []
        self._late = None
        self._why = _FORKED
        self._handle = None
        self.listeners = {}
        for region in list(self.regions.values()):
            region._forked()
        self.regions = {}


def _after_fork() -> None:
    for session in list(_sessions):
        session._forked()


def _stay_at_exit() -> None:
    """Lets no other thread return from a call once the interpreter ends.

    They are daemon threads, the others have been waited for. One that came back with Closed would write a traceback to
    a stderr that is about to go, and Python aborts when it finds stderr locked.
    """
    if _exiting is not None and _exiting != threading.get_ident():
        threading.Event().wait()


def _at_exit() -> None:
    global _exiting
    _exiting = threading.get_ident()
    for session in list(_sessions):
        session.close(_EXIT_SECONDS)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
