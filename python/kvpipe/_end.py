"""What the ends of pipes and lookup buffers share: waiting in threads and in asyncio, so that close() and signals are heard."""

from __future__ import annotations

import asyncio
import ctypes
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, NamedTuple, Optional, Set

from . import _values
from ._ear import Ear
from ._session import Session
from .errors import Error, Invalid, Reason
from .operation import SLICE_NS

if TYPE_CHECKING:
    from .node import Node

#: seconds that a call waits when its timeout is None
TIMEOUT = 30.0

# The time in the library's texts (capi/put.c, recv.c, pipe.c).
_WITHIN = re.compile(r"within [0-9.]+ m?s:")
# Said when the submission queue is full (capi/end_ops.c): nothing tells when it has room again.
_FULL = "the daemon does not take submissions"
_SELDOM = 2.0  # seconds between two looks, in the end

Call = Callable[[int, int], int]  # (handle, ns) -> the library's code


class Deadline(NamedTuple):
    """When a call's time is over."""

    #: by time.monotonic_ns()
    at: int
    #: the time that the caller gave, in ns
    given: int

    @property
    def left(self) -> int:
        """ns; negative once it is over."""
        return self.at - time.monotonic_ns()

    def later(self, ns: int) -> "Deadline":
        return self._replace(at=self.at + ns)


def deadline(timeout: Optional[float]) -> Deadline:
    ns = _values.wait("timeout", TIMEOUT if timeout is None else timeout)
    if ns >= 1 << 62:
        raise Invalid(f"timeout is {_values.show(timeout)}: nothing waits for ever; give a finite number of seconds")
    return Deadline(time.monotonic_ns() + ns, ns)


def opened(node: "Node", call: Callable[[int, Any], int], free: Callable[[Any], None]) -> int:
    """The handle of an end, as the library's call opens it; free: closes it."""
    handle = ctypes.c_void_p()
    with node._session as session:
        try:
            node._session.lib.check(call(session, ctypes.byref(handle)))
        except BaseException:
            if handle.value is not None:  # a signal handler raised as the call returned
                free(handle)
            raise
    assert handle.value is not None
    return handle.value


def _whole(error: Error, until: Deadline) -> Error:
    """The library's text names the time of one slice: puts the time of the whole call in its place."""
    ms = round(until.given / 1e6)
    error.args = (_WITHIN.sub(f"within {ms} ms:" if ms < 1000 else f"within {ms / 1e3:.6g} s:", str(error), count=1),)
    return error


class End:
    """A handle of the library with its calls; a context manager that closes it."""

    def __init__(self, node: "Node", handle: int, name: str, free: Callable[[int], None], fd: Callable[[int], int]) -> None:
        self._lib = node._session.lib
        self._parent = node._session
        self._keeps: Optional["Node"] = node  # a node that nobody holds is closed, and its ends with it
        self._session = Session(self._lib, handle, free, f'"{name}" is closed: open it again')
        self._fd = fd
        self._listeners: Dict[asyncio.AbstractEventLoop, _Listener] = {}
        #: the name that both ends know it by
        self.name = name
        self._parent.has(self)

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._session.closed

    def fileno(self) -> int:
        """A descriptor for select and epoll. After a call with timeout 0 raised Timeout, it is readable when
        the call may succeed.

        Do not close it.
        """
        with self._session as handle:
            return self._lib.check(self._fd(handle))

    def close(self) -> None:
        """Closes this end. Calls of other threads end with Closed first."""
        self._session.close()
        self._wake()
        self._keeps = None

    def _wake(self) -> None:
        """Makes every event loop that waits here look again: the end was closed, or its node, and the descriptor is gone."""
        for listener in list(self._listeners.values()):
            listener.wake()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session: Any = getattr(self, "_session", None)
        if session is not None:
            session.close(0)

    def __repr__(self) -> str:
        return f"<kvpipe.{type(self).__name__} {self.name!r}{' closed' if self.closed else ''}>"

    def _try(self, call: Call, ns: int) -> Optional[Error]:
        """One call of at most ns; Timeout as a value, other errors are raised."""
        with self._session as handle:
            code = call(handle, ns)
            if code >= 0:
                return None
            error = self._lib.error(code)
        if code != -Reason.TIMEOUT:
            raise error
        return error

    def _wait(self, call: Call, until: Deadline) -> None:
        """Calls in slices until it succeeds; Timeout when the time is over."""
        while True:
            left = max(until.left, 0)
            error = self._try(call, min(left, SLICE_NS))
            if error is None:
                return
            if left <= SLICE_NS:
                raise _whole(error, until)

    async def _wait_async(self, call: Call, until: Deadline) -> None:
        """The same on an event loop that has add_reader()."""
        loop = asyncio.get_running_loop()
        listener = self._listeners.get(loop)
        if listener is None:
            listener = self._listeners[loop] = _Listener(self, loop)
        listener.users += 1
        pause = SLICE_NS / 1e9
        try:
            while True:
                heard = listener.listen()  # before the try, so that what comes later is heard
                try:
                    error = self._try(call, 0)
                    if error is None:
                        return
                    left = until.left / 1e9
                    if left <= 0:
                        raise _whole(error, until)
                    if _FULL in str(error):  # the try itself held up the loop: the next ones come ever more seldom
                        listener.deaf.add(heard)
                        left, pause = min(left, pause), min(2 * pause, _SELDOM)
                    await asyncio.wait((heard,), timeout=left)
                finally:
                    listener.waiting.discard(heard)
                    listener.deaf.discard(heard)
        finally:
            listener.users -= 1
            if listener.users == 0:
                del self._listeners[loop]
                listener.close()


class _Listener(Ear):
    """One event loop's ear on one end, for all of its tasks; used in that loop's thread alone, except for wake()."""

    def __init__(self, end: End, loop: asyncio.AbstractEventLoop) -> None:
        self.users = 0
        self.waiting: "Set[asyncio.Future[None]]" = set()
        #: those of them that ignore edges: each try that finds no room makes one itself
        self.deaf: "Set[asyncio.Future[None]]" = set()
        with end._parent, end._session as handle:  # nobody closes the descriptor meanwhile
            super().__init__(loop, end._lib.check(end._fd(handle)))

    def listen(self) -> "asyncio.Future[None]":
        future: "asyncio.Future[None]" = self._loop.create_future()
        self.waiting.add(future)
        return future

    def _heard(self) -> None:
        self._tell(self.waiting - self.deaf)

    def _tell(self, futures: "Set[asyncio.Future[None]]") -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._tell, self.waiting)
        except RuntimeError:  # the loop is closed: nobody waits there any more
            pass
