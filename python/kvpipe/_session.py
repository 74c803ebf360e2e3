"""One session of the library, and who may use its handle when.

The C handle must not be used while or after another thread closes it; Python's callers need not know that. Every call
enters the session, and close() waits until those inside have left. Calls that wait do so in slices (operation.py), so
that close() and Ctrl-C are heard.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, List, Optional, TypeVar, Union

from . import _said, _values
from ._library import Library
from ._unread import keep, unread
from .errors import Closed, Error, Invalid, Reason

if TYPE_CHECKING:
    from ._end import End
    from .adopted import AdoptedRegion
    from .aio import Listener
    from .operation import Operation
    from .region import Region

_T = TypeVar("_T")
_CLOSED = "the session is closed: connect again"
_FORKED = "the session belongs to the parent process: connect again after fork()"
# Seconds that kvpipe_close() waits for the fence, at most. One that returns sooner has the fence.
_FENCE_SECONDS = 5.0
# Seconds that the end of the interpreter waits for other threads' calls.
_EXIT_SECONDS = 1.0


class _Here(threading.local):
    """The calling thread. Reading it makes no call, so no signal handler runs in between."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


_here = _Here()
_sessions: "weakref.WeakValueDictionary[int, Session]" = weakref.WeakValueDictionary()  # by what id() says
# The thread that ends the interpreter, once it does.
_exiting: Optional[int] = None


class Session:
    """The handle, what was made with it, and the calls under way. ``with session as handle`` enters it."""

    def __init__(self, lib: Library, handle: int, free: Optional[Callable[[int], None]] = None, why: str = _CLOSED) -> None:
        """For a handle that is not a session's, free: closes it; why: what to say once it is closed."""
        self.lib = lib
        #: a scheduler has no memory of its own
        self.owns_memory = True
        self._of_node = free is None
        self._free: Callable[[int], None] = free or lib.close
        self.regions: Dict[int, Union["Region", "AdoptedRegion"]] = {}
        #: operations that the program still holds
        self.operations: "weakref.WeakValueDictionary[int, Operation]" = weakref.WeakValueDictionary()
        #: ids of released operations that it does not hold any more, and whose completions it has seen: the library may
        #: forget them (and would forget uncollected completions, too); appended to by __del__, which must not lock
        self.dropped: Deque[int] = deque()
        #: held from a submission until its operation is in the table
        self.submitting = threading.RLock()
        #: submissions under way: one, and those of signal handlers in the middle of it
        self.under_way = 0
        #: like dropped, but for submissions under way: they may be of such an operation, which the program is about to hold
        self.unsure: Deque[int] = deque()
        #: event loop -> who listens there
        self.listeners: Dict[Any, "Listener"] = {}
        self._ends: "weakref.WeakSet[End]" = weakref.WeakSet()  # the library closes these with the handle
        self._handle: Optional[int] = handle
        self._late: Optional[int] = None  # the handle, from when calls get it no more until a thread closes it
        self._closing: Optional[int] = None  # the thread whose close() waits for those inside; else the last one to leave closes the handle
        self._closer: Optional[int] = None  # the thread that closes it
        self._over = False  # the handle is closed
        self._why = why
        self._inside: List[int] = []  # threads; one may be there twice
        self._changed = threading.Condition(threading.RLock())
        _sessions[id(self)] = self

    # There is no lock, as every call comes through here. A call that enters first says that it is inside, then looks at the
    # handle; close() first takes the handle, then looks who is inside.

    # A signal handler may raise anywhere, also between two calls of a line. Still, a call that did not get in must not be inside, and
    # one that leaves must have left.

    def __enter__(self) -> int:
        inside, said = self._inside.count(_here.thread), _said.depth()
        try:
            self._inside.append(_here.thread)
            if unread.raws is not None:  # this call is a signal handler's or the garbage collector's
                keep(unread.raws)
            _said.enter(self.lib)
            handle = self._handle
            if handle is None:
                raise Closed(self._why)
            return handle
        except BaseException:
            if _said.depth() > said:
                _said.leave(self.lib)
            if self._inside.count(_here.thread) > inside:
                self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            _said.leave(self.lib)
        finally:
            self._leave()

    def _leave(self) -> None:
        try:
            self._inside.remove(_here.thread)
        finally:
            if self._handle is None:
                self._left()
        _stay_at_exit()

    def _left(self) -> None:
        """Tells close() that a call has left, or closes the handle if close() could not wait for that."""
        with self._changed:
            self._changed.notify_all()
            mine = self._is_late()
        if mine:
            self._finish()

    def _is_late(self) -> bool:
        return self._late is not None and not self._inside and self._closing is None

    def _finish(self) -> None:
        """Closes the handle, unless another thread does, and then ends what was made with it, whatever a signal handler raises meanwhile.
        If it raises before that, the handle is left for the next close()."""
        handle: Optional[int] = None
        operations, began = self._held(), time.monotonic()
        with _said.call(self.lib):
            try:
                with self._changed:
                    if self._late is not None:
                        # No call in between, so no signal handler either (before Python 3.11: hardly one).
                        handle, self._late, self._closer = self._late, None, _here.thread
            finally:
                if handle is not None:
                    try:
                        self._free(handle)
                    finally:
                        self._end(operations if time.monotonic() - began < _FENCE_SECONDS else [])

    def _held(self) -> "List[Operation]":
        """The operations that the program holds."""
        return _there(self.operations)

    def _end(self, fenced: "List[Operation]") -> None:
        """The handle is closed: ends what was made with it. The library wakes threads that wait at the session's ends, but no event loops,
        whose descriptors are gone."""
        try:
            for operation in fenced:
                operation._free()
            with self._changed:
                ends = list(self._ends)
            for end in ends:
                end._wake()
            for region in list(self.regions.values()):
                region._end()
            self.regions.clear()
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def may_own(self, what: str) -> None:
        if not self.owns_memory:
            raise Invalid(f"{what}: a scheduler owns no memory: its workers register it")

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

    def sort_out(self) -> None:
        """Of what poll() gave out, the program may by now hold what was being submitted, and not the others. The library forgets only what
        is released; what is not is sorted out with its RELEASED."""
        while self.unsure and not self.under_way:
            try:
                number = self.unsure.popleft()
            except IndexError:  # another thread was faster
                return
            operation = self.operations.get(number)
            with contextlib.suppress(Error), self as handle:
                released = self.lib.op_released(handle, number) == 1
                if operation is not None:
                    operation._look()
                    if released:
                        operation._free()
                elif released:
                    self.dropped.append(number)

    @contextlib.contextmanager
    def making(self, handle: int, region: "ctypes.c_uint64") -> Iterator[None]:
        """A region is made, by a call that leaves its id in region. If a signal handler raises once there is one, the daemon does not keep
        it: nobody could take it away any more."""
        try:
            yield
        except BaseException:
            if region.value:
                self.regions.pop(region.value, None)
                self.lib.mem_unregister(handle, region.value, 0)
            raise

    def unregister(self, region: int, timeout: Optional[float]) -> None:
        """Takes a region away from the daemon. If the session has ended, that is done already."""
        ns = _values.duration("timeout", timeout)
        try:
            with self as handle:
                code = self.lib.mem_unregister(handle, region, ns)
                if code != -Reason.NOT_FOUND:  # else an earlier call has done it, and a signal handler raised as that returned
                    self.lib.check(code)
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

        If that is not enough, or if the calling thread is inside itself (in a signal handler, or by the garbage collector),
        the last call to leave closes the handle. A close() that comes while another thread closes the handle waits for that.
        """
        first = alone = mine = False
        try:
            with self._changed:
                if self._handle is None:
                    mine = self._is_late()  # an interrupt ended an earlier close()
                else:
                    try:
                        self._closing = _here.thread
                        self._late, self._handle = self._handle, None
                        first = True
                        others = self._changed.wait_for(lambda: all(thread == _here.thread for thread in self._inside), patience)
                        alone = others and _here.thread not in self._inside
                    finally:
                        self._closing = None
                        self._changed.notify_all()
                        # A call that comes now finds no handle, and need not be waited for. If an interrupt ended the wait and nobody is
                        # inside, nobody will leave and close the handle.
                        mine = self._handle is None and (alone or not self._inside)
        finally:
            if first:
                for operation in self._held():
                    operation._abandon(Closed("the session was closed while the operation ran"))
            if mine:
                self._finish()
        if mine or not first:
            self._await_end(patience)

    def _await_end(self, patience: Optional[float]) -> None:
        """Waits for the thread that closes the handle, if it is another one: first for the calls inside to leave, then for the fence."""
        with self._changed:
            if _here.thread in (self._closing, self._closer, *self._inside):
                return
            self._changed.notify_all()  # a signal handler may have interrupted this thread before it said that it left
            self._changed.wait_for(lambda: self._closing is None, patience)
            self._changed.wait_for(lambda: self._over, _FENCE_SECONDS if patience is None else patience)

    def _forked(self) -> None:
        """In a child. Threads that do not exist here may hold locks, so they are made anew, and the handle is left alone."""
        self._changed = threading.Condition(threading.RLock())
        self.submitting = threading.RLock()
        self._inside = [thread for thread in self._inside if thread == _here.thread]  # in a call that a signal handler interrupted
        self._late = self._closing = self._closer = None
        self._over = True
        self._why = _FORKED
        self._handle = None
        self.listeners = {}
        for region in list(self.regions.values()):
            region._forked()
        self.regions = {}


def _there(held: "weakref.WeakValueDictionary[int, _T]") -> List[_T]:
    """Not by values(), which fails when another thread enters one meanwhile."""
    there = [ref() for ref in held.valuerefs()]
    return [one for one in there if one is not None]


def _after_fork() -> None:
    for session in _there(_sessions):
        session._forked()


def _stay_at_exit() -> None:
    """Lets no other thread return from a call once the interpreter ends.

    Such threads are daemon threads; the others have been waited for. One that came back with Closed would write a
    traceback to a stderr that is about to go, and Python aborts when it finds stderr locked.
    """
    if _exiting is not None and _exiting != threading.get_ident():
        threading.Event().wait()


def _at_exit() -> None:
    global _exiting
    _exiting = threading.get_ident()
    # Those of nodes first: the ends go with them, and each would wait for the fence by itself.
    for session in sorted(_there(_sessions), key=lambda session: not session._of_node):
        session.close(_EXIT_SECONDS)
        session.submitting = threading.RLock()  # a thread that stays may hold the other one: who submits now is to hear that it is closed


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
