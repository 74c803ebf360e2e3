"""What every operation can do: be waited for, in threads and in asyncio."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from . import _abi, _values, aio, completion
from ._unread import unread
from .completion import Completion
from .errors import Closed, Error, Reason, Timeout

if TYPE_CHECKING:
    from .node import Node

# A call that waits comes back this often, so that close() by another thread and signals are heard.
SLICE_NS = 200_000_000
# What the library takes for the time of an operation that was given none.
_DEFAULT_NS = 30_000_000_000
# How long past an operation's deadline its memory is waited for by default: the daemon may have stopped, or may not be sure of it.
_PAST_NS = 30_000_000_000
_ONE = _abi.Completion * 1


class Operation:
    """An operation of this node, from Node.watch() or Node.drop(). Offer and Take are subclasses.

    Any thread may call any method. A program that only polls need not keep the object: the operation goes on
    without it, and its completion then has only its tag.
    """

    def __init__(self, node: "Node", number: int, key: bytes, ns: int) -> None:
        """ns: the operation's own timeout; 0: the default."""
        self._node = node
        self._session = node._session
        self._id = number
        self._deadline = time.monotonic_ns() + (ns or _DEFAULT_NS)
        self._end: Optional[Completion] = None
        self._gone: Optional[Error] = None
        self._released = False
        self._waiting: List[Callable[[], None]] = []
        self.key = key

    @property
    def done(self) -> bool:
        """Whether the operation has ended, well or not."""
        return self._look() is not None

    @property
    def completion(self) -> Optional[Completion]:
        """How the operation ended; None while it runs."""
        end = self._look()
        return None if end is None else end._replace(op=self)

    @property
    def released(self) -> bool:
        """True when nothing touches the operation's memory any more, so it may be reused.

        It is True after Node.close(), too, with two exceptions, in which it raises Closed: the daemon did not
        answer the close(), or close() left its work to a call that was under way.
        """
        if not self._released:
            with self._session as handle:
                lib = self._session.lib
                self._released = lib.check(lib.op_released(handle, self._id)) == 1
        return self._released

    def wait(self, timeout: Optional[float] = None) -> Completion:
        """Waits for the operation's end and returns how it ended. If it failed or was cancelled, raises its
        Error.

        ``timeout`` is in seconds; with None, the operation's own deadline ends the wait. A Timeout without
        ``completion`` means that the operation still runs.
        """
        if self._end is None:
            self._sliced("wait", timeout, self._hear, lambda: None)
        return self._outcome()

    def wait_released(self, timeout: Optional[float] = None) -> None:
        """Waits until the memory may be reused. Raises Timeout if it may not yet.

        ``timeout`` is in seconds; None is 30 s past the operation's own deadline, or past now if that is
        over.
        """
        if not self._released:
            lib = self._session.lib
            if timeout is None:
                timeout = round((max(self._deadline - time.monotonic_ns(), 0) + _PAST_NS) / 1e9, 1)
            self._sliced("wait_released", timeout, lambda h, ns: int(lib.wait_released(h, self._id, ns)), self._free)

    async def wait_async(self, timeout: Optional[float] = None) -> Completion:
        """wait() for asyncio: for any number of tasks, on any event loop that has add_reader()."""
        ns = _values.wait("timeout", timeout)
        await aio.wait(self, None if ns == _abi.FOREVER else ns / 1e9)
        return self._outcome()

    def _sliced(self, what: str, timeout: Optional[float], call: Callable[[int, int], int],
                success: Callable[[], None]) -> None:
        ns = _values.wait("timeout", timeout)
        deadline = None if ns == _abi.FOREVER else time.monotonic_ns() + ns
        while True:
            left = SLICE_NS if deadline is None else max(deadline - time.monotonic_ns(), 0)
            with self._session as handle:
                code = call(handle, min(left, SLICE_NS))
                if code == 0:
                    success()
                    return
                error = self._session.lib.error(code)
            if code != -Reason.TIMEOUT:
                raise error
            if left == 0:
                raise Timeout(f"{what}: {self!r}: not within {timeout} s")

    def _look(self) -> Optional[Completion]:
        """How it ended, without waiting."""
        if self._end is None:
            with self._session as handle:
                code = self._hear(handle, 0)
                if code not in (0, -Reason.TIMEOUT):
                    raise self._session.lib.error(code)
        return self._end

    def _hear(self, handle: int, ns: int) -> int:
        """Waits for the end, at most ns, and returns the library's code: 0 when the operation has ended, and its end was read."""
        raws, outer = _ONE(), unread.raws
        try:
            unread.raws = raws
            code: int = self._session.lib.wait(handle, self._id, ns, raws)
            if code == 0:
                self._settle(completion.read(raws[0], self))
        finally:
            unread.raws = outer
        return code

    def _settle(self, end: Completion) -> None:
        """Keeps the end for everybody; the thread that sees it first does so."""
        self._end = end._replace(op=None)  # no reference cycle, so an operation that nobody holds goes at once
        if end.released:
            self._released = True
        self._wake()

    def _free(self) -> None:
        self._released = True

    def _abandon(self, why: Error) -> None:
        if self._end is None:
            self._gone = why
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            try:
                self._waiting.pop()()
            except IndexError:  # another thread was faster
                return

    def _outcome(self) -> Completion:
        if self._end is None:
            raise self._gone or Closed("the session is closed")
        end = self._end._replace(op=self)
        error: Optional[Error] = end.error()
        if error is not None:
            raise error
        return end

    def __repr__(self) -> str:
        state = "running" if self._end is None else getattr(self._end.status, "name", str(self._end.status)).lower()
        return f"<kvpipe.{type(self).__name__} {self.key!r} {state}>"

    def __del__(self) -> None:
        session: Any = getattr(self, "_session", None)
        if session is not None and self._end is not None and self._released:
            session.dropped.append(self._id)  # else poll() does, once it has given out the last completion
