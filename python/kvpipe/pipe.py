"""Pipes: tensors from one sender to one receiver, in order."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Iterator, Optional

from . import _abi, _end, _values, received, tensors
from ._end import End
from .errors import Closed, Incompatible, Invalid, PeerGone, Timeout

if TYPE_CHECKING:
    from .node import Node

# What the daemon says at the end of what was sent (daemon/transfer/linger.go). Other closes (of this end, of its node, of the session by
# the daemon) have the same reason.
_ALL = re.compile(r'"(\.\.\.)? was closed by its sender(, and everything in it was received| after \d+ items?)$')
# What it says of what lay in it for longer than its sender's linger.
_GIVEN_UP = re.compile(r" not received within \S+ \(linger\): closed by its owner$")


def given_up(error: Exception) -> bool:
    """Whether its sender closed it, and nobody received what was in it in time."""
    return isinstance(error, PeerGone) and _GIVEN_UP.search(str(error)) is not None


def all_sent(error: Closed) -> bool:
    return _ALL.search(str(error)) is not None


def open_pipe(node: "Node", name: str, end: str, capacity: Optional[int], token: Optional[bytes], peer: Optional[str],
              window: Optional[int], linger: Optional[float]) -> "Pipe":
    which = _abi.ENDS[_values.one_of("pipe: end", end, _abi.ENDS)]
    for given, value in (("capacity", capacity), ("window", window)):
        if value is not None and _values.integer(given, value, 64) == 0:
            raise Invalid(f"pipe: {given} is 0: must be at least 1, or None for the default")
    secret = _values.secret(token)
    opts = _abi.opts(
        _abi.PipeOpts,
        name=_values.text("name", name),
        end=which,
        capacity=_values.integer("capacity", capacity or 0, 64),
        token=secret,
        token_len=len(secret or b""),
        window=_values.integer("window", window or 0),
        peer=_values.text("peer", peer),
        linger_ns=_values.duration("linger", linger),
    )
    lib = node._session.lib
    return Pipe(node, _end.opened(node, lambda h, out: int(lib.pipe_open(h, ctypes.byref(opts), out)), lib.pipe_close), name, end)


class Pipe(End):
    """One end of a pipe, from Node.pipe(); a context manager that closes it.

    A tensor is one of torch or numpy in host memory, a RawTensor, a buffer (bytes, array.array), or None,
    which is a value like others. Any thread may call any method; methods that wait release the GIL.

    A ``timeout`` is in seconds; None is 30, and 0 is a try. Timeout loses nothing: the next call returns what
    did not come in time.

    Iterating receives everything that was sent until the sender has closed the pipe, however long it is
    quiet. Any other end is raised, as by recv_tensor(). That includes Closed, if this end or its node was
    closed, by another thread or before.
    """

    def __init__(self, node: "Node", handle: int, name: str, end: str) -> None:
        lib = node._session.lib
        super().__init__(node, handle, name, lib.pipe_close, lib.pipe_fd)
        #: "send" or "recv"
        self.end = end
        self._unread: Deque[int] = deque()  # messages that were received and could not be returned

    # ---- sending

    def send_tensor(self, tensor: Any, timeout: Optional[float] = None) -> None:
        """Sends a copy of a tensor, or None. Waits only for room, and the tensor may be written again at
        once.

        Raises Timeout (no room in time) or Invalid (larger than the capacity, or than 4,294,967,231 bytes, or
        of a kind that cannot be sent). If an earlier send failed, every call from then on raises that
        failure: PeerGone, Restarted, ...
        """
        pointer, held = tensors.describe_or_none("send_tensor", tensor)
        self._wait(lambda h, ns: int(self._lib.pipe_send(h, pointer, ns)), _end.deadline(timeout))
        del held

    async def send_tensor_async(self, tensor: Any, timeout: Optional[float] = None) -> None:
        """send_tensor() for asyncio."""
        pointer, held = tensors.describe_or_none("send_tensor", tensor)
        await self._wait_async(lambda h, ns: int(self._lib.pipe_send(h, pointer, ns)), _end.deadline(timeout))
        del held

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until the receiving end has fetched everything that was sent. It may still lie unread there
        (``window``).

        What others send during the call counts, too, if they never pause.
        """
        self._wait(lambda h, ns: int(self._lib.pipe_flush(h, ns)), _end.deadline(timeout))

    async def flush_async(self, timeout: Optional[float] = None) -> None:
        """flush() for asyncio."""
        await self._wait_async(lambda h, ns: int(self._lib.pipe_flush(h, ns)), _end.deadline(timeout))

    # ---- receiving

    def recv_tensor(self, timeout: Optional[float] = None, framework: str = "auto") -> Any:
        """Receives the next tensor, or None if None was sent.

        The tensor owns its memory, which is free once the tensor is collected. A forked child may find zeros
        in it.

        - ``framework``: "torch", "numpy", "raw" (a RawTensor), or "auto": torch if it is installed, else
          numpy, else raw.

        Raises Timeout (nothing came), Closed (the sender closed the pipe and everything was received; or this
        end or its node was closed), PeerGone (the sender died, or it is not known whether it did), or Quota
        (no memory for the tensor, or it is larger than the capacity on which this end was opened). Raises
        Unavailable if the framework lacks the type; the tensor stays the next one. Raises Incompatible if the
        framework cannot have the shape; the tensor is gone. So it is if this version does not understand it:
        open the end again for what follows.
        """
        chosen = received.choose(framework)
        with self._next() as message:
            if message.value is None:
                self._wait(lambda h, ns: int(self._lib.pipe_recv(h, ns, ctypes.byref(message))), _end.deadline(timeout))
            return self._read(message, chosen)

    async def recv_tensor_async(self, timeout: Optional[float] = None, framework: str = "auto") -> Any:
        """recv_tensor() for asyncio. A task that is cancelled loses nothing.

        For the first tensor the end makes its memory, and the event loop stands still meanwhile: for as long
        as it takes to write two and a half times the capacity. recv_tensor() in a thread avoids that.
        """
        chosen = received.choose(framework)
        with self._next() as message:
            if message.value is None:
                await self._wait_async(lambda h, ns: int(self._lib.pipe_recv(h, ns, ctypes.byref(message))),
                                       _end.deadline(timeout))
            return self._read(message, chosen)

    @contextlib.contextmanager
    def _next(self) -> Iterator[ctypes.c_void_p]:
        """A call's own message, which other threads do not see. If the call cannot return it, the next call does."""
        message = ctypes.c_void_p()
        try:
            with self._session, contextlib.suppress(IndexError):  # not in a forked child, which lacks the memory
                message.value = self._unread.popleft()
            yield message
        except BaseException:
            if message.value is not None:
                self._unread.appendleft(message.value)
            raise

    def _read(self, message: ctypes.c_void_p, framework: str) -> Any:
        try:
            return received.tensors(self._lib, message, framework)[0]
        except Incompatible:  # it would be in the way for ever
            handle, message.value = message.value, None
            self._lib.msg_free(handle)
            raise

    def __iter__(self) -> "Pipe":
        return self

    def __next__(self) -> Any:
        while True:
            with contextlib.suppress(Timeout):  # it may be quiet for long
                try:
                    return self.recv_tensor()
                except Closed as error:
                    if not all_sent(error):
                        raise
                    raise StopIteration from None

    def __aiter__(self) -> "Pipe":
        return self

    async def __anext__(self) -> Any:
        while True:
            with contextlib.suppress(Timeout):
                try:
                    return await self.recv_tensor_async()
                except Closed as error:
                    if not all_sent(error):
                        raise
                    raise StopAsyncIteration from None

    def __del__(self) -> None:
        super().__del__()
        for message in getattr(self, "_unread", ()):
            self._lib.msg_free(message)
