"""Lookup buffers: entries of up to five tensors, found by their tokens."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Tuple

from . import _abi, _end, _values, received, tensors
from ._end import Call, End
from ._values import Key
from .errors import Error, Invalid, Reason

if TYPE_CHECKING:
    from .node import Node

_MEMBERS = ("tokens", "roi", "key", "value", "hidden")
# What the daemon gets past a query's time to end it; then the library ends it.
_GRACE_NS = 500_000_000


class Entry(tuple):  # type: ignore[type-arg]
    """What drop_select() found: (tokens, roi, key, value, hidden), each a tensor or None."""

    #: how many tokens agreed with the query's
    matched: int

    @classmethod
    def _of(cls, members: List[Any], matched: int) -> "Entry":
        entry = cls(members)
        entry.matched = matched
        return entry


def open_lookup(node: "Node", name: str, capacity: Optional[int], token: Optional[bytes], peer: Optional[str],
                linger: Optional[float]) -> "LookupBuffer":
    secret = _values.secret(token)
    room = 0 if capacity is None else _values.integer("capacity", capacity, 64)
    if capacity is not None and room == 0:
        raise Invalid("lookup_buffer: capacity is 0: give the owner's end some bytes, or None for a selecting end")
    opts = _abi.opts(
        _abi.LookupOpts,
        name=_values.text("name", name),
        capacity=room,
        token=secret,
        token_len=len(secret or b""),
        peer=_values.text("peer", peer),
        linger_ns=_values.duration("linger", linger),
    )
    lib = node._session.lib
    return LookupBuffer(node, _end.opened(node, lambda h, out: int(lib.lookup_open(h, ctypes.byref(opts), out)), lib.lookup_close), name)


class LookupBuffer(End):
    """One end of a lookup buffer, from Node.lookup_buffer(). The owner inserts and puts; a selecting end
    selects and gets.

    Tensors and timeouts are as for Pipe. Any thread may call any method, with any number of queries at a
    time. At most 1,360 queries of an end look for entries at a time, and none of these waits for another.
    Further queries wait for some to end.
    """

    def __init__(self, node: "Node", handle: int, name: str) -> None:
        lib = node._session.lib
        super().__init__(node, handle, name, lib.lookup_close, lib.lookup_fd)

    # ---- the owner's end

    def insert(self, tokens: Any, roi: Any, key: Any, value: Any, hidden: Any, timeout: Optional[float] = None) -> None:
        """Inserts an entry of five tensors, each of which may be None. Waits only while the capacity is
        exceeded.

        The entry is found by those of its ``tokens`` (one dimension, integers of 0 to 2^32 - 1) whose ``roi``
        (bool, of the same length) is true. Without tokens, only a query for anything finds it.

        Raises Invalid at once for an entry larger than the capacity, or than 4,294,967,231 bytes. If the
        daemon did not take earlier entries, one following call raises the reason, and says how many.
        """
        array, held = self._entry(tokens, roi, key, value, hidden)
        self._wait(lambda h, ns: int(self._lib.lookup_insert(h, array, ns)), _end.deadline(timeout))
        del held

    async def insert_async(self, tokens: Any, roi: Any, key: Any, value: Any, hidden: Any,
                           timeout: Optional[float] = None) -> None:
        """insert() for asyncio."""
        array, held = self._entry(tokens, roi, key, value, hidden)
        await self._wait_async(lambda h, ns: int(self._lib.lookup_insert(h, array, ns)), _end.deadline(timeout))
        del held

    @staticmethod
    def _entry(*members: Any) -> Tuple[Any, Any]:
        described = [tensors.describe_or_none(f"insert: {name}", m) for name, m in zip(_MEMBERS, members)]
        array = (ctypes.POINTER(_abi.Tensor) * _abi.MEMBERS)()
        for i, (pointer, _) in enumerate(described):
            if pointer is not None:
                array[i] = pointer
        return array, described

    def put(self, key: Key, value: Any, timeout: Optional[float] = None) -> None:
        """Puts a tensor, or None, under a key, in place of what the key had. It stays until it is replaced.

        The old tensor stays until the new one is there. If both together exceed the capacity, there is never
        room (Timeout).

        Raises Quota if the daemon does not take the tensor; the key keeps what it had. Raises the error of an
        earlier insert, as insert() does. A Timeout that says that the daemon does not answer means: the
        tensor is there once the daemon goes on.
        """
        name, (pointer, held) = _values.key(key), tensors.describe_or_none("put", value)
        self._wait(lambda h, ns: int(self._lib.lookup_put(h, name, len(name), pointer, ns)), _end.deadline(timeout))
        del held

    async def put_async(self, key: Key, value: Any, timeout: Optional[float] = None) -> None:
        """put() for asyncio. While the daemon does not answer, the event loop stands still, half a second at
        a time.
        """
        name, (pointer, held) = _values.key(key), tensors.describe_or_none("put", value)
        await self._wait_async(lambda h, ns: int(self._lib.lookup_put(h, name, len(name), pointer, ns)), _end.deadline(timeout))
        del held

    # ---- selecting ends

    def drop_select(self, tokens: Any = None, roi: Any = None, timeout: Optional[float] = None, match: str = "prefix",
                    framework: str = "auto") -> Entry:
        """Waits for an entry that matches, removes it from the buffer, and returns its five members, with
        ``.matched``.

        - ``match``: "prefix": one of the two sequences of tokens (under their roi) begins with the other;
          "exact": they are equal. Without tokens any entry matches. The oldest match is taken.

        Raises Timeout if none came. If the Timeout says that the daemon does not answer, an entry that was on
        its way is lost. So is one that came as an interrupt ended the call. A forked child may find zeros in
        the tensors.
        """
        chosen, until = received.choose(framework), _end.deadline(timeout)
        with self._select(tokens, roi, match, until) as (look, message):
            self._wait(look, until.later(_GRACE_NS))
            return self._outcome(message, chosen)

    async def drop_select_async(self, tokens: Any = None, roi: Any = None, timeout: Optional[float] = None,
                                match: str = "prefix", framework: str = "auto") -> Entry:
        """drop_select() for asyncio. An entry is lost if it came as the task was cancelled. So do not use
        ``asyncio.wait_for``: give ``timeout`` here.

        The event loop stands still while the end makes its memory, as in Pipe.recv_tensor_async().
        """
        chosen, until = received.choose(framework), _end.deadline(timeout)
        with self._select(tokens, roi, match, until) as (look, message):
            await self._wait_async(look, until.later(_GRACE_NS))
            return self._outcome(message, chosen)

    def get(self, key: Key, timeout: Optional[float] = None, framework: str = "auto") -> Any:
        """Waits for a key and returns its tensor, or None if it holds None. The buffer keeps it."""
        chosen, until = received.choose(framework), _end.deadline(timeout)
        with self._get(key, until) as (look, message):
            self._wait(look, until.later(_GRACE_NS))
            return self._outcome(message, chosen)[0]

    async def get_async(self, key: Key, timeout: Optional[float] = None, framework: str = "auto") -> Any:
        """get() for asyncio. The event loop stands still while the end makes its memory, as in Pipe.recv_tensor_async()."""
        chosen, until = received.choose(framework), _end.deadline(timeout)
        with self._get(key, until) as (look, message):
            await self._wait_async(look, until.later(_GRACE_NS))
            return self._outcome(message, chosen)[0]

    @contextlib.contextmanager
    def _select(self, tokens: Any, roi: Any, match: str, until: _end.Deadline) -> Iterator[Tuple[Call, ctypes.c_void_p]]:
        how = _abi.MATCHES[_values.one_of("drop_select: match", match, _abi.MATCHES)]
        (t, held), (r, also) = (tensors.describe_or_none("drop_select: tokens", tokens),
                                tensors.describe_or_none("drop_select: roi", roi))
        with self._asking(lambda h, query: self._lib.lookup_select(h, t, r, how, _left(until), query)) as asked:
            del held, also
            yield asked

    @contextlib.contextmanager
    def _get(self, key: Key, until: _end.Deadline) -> Iterator[Tuple[Call, ctypes.c_void_p]]:
        name = _values.key(key)
        with self._asking(lambda h, query: self._lib.lookup_get(h, name, len(name), _left(until), query)) as asked:
            yield asked

    @contextlib.contextmanager
    def _asking(self, ask: Callable[[int, Any], Any]) -> Iterator[Tuple[Call, ctypes.c_void_p]]:
        """Submits a query. Yields the call that waits for it, and where that leaves the message. Both are freed when the caller's call ends,
        however it ends."""
        query, message = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            with self._session as handle:
                self._lib.check(ask(handle, ctypes.byref(query)))
            yield lambda h, ns: self._look(query, ns, message), message
        finally:
            if query.value is not None:
                self._lib.query_free(query)
            if message.value is not None:  # no tensor has taken it over
                self._lib.msg_free(message)

    def _look(self, query: ctypes.c_void_p, ns: int, message: ctypes.c_void_p) -> int:
        """Waits for the query. Returns TIMEOUT only while it runs; the query's own Timeout is raised."""
        code: int = self._lib.query_wait(query, ns, ctypes.byref(message))
        if code != -Reason.TIMEOUT:
            return code
        error = self._lib.error(code)
        if self._lib.query_done(query):
            code = self._lib.query_wait(query, 0, ctypes.byref(message))  # it may have ended in between
            if code == -Reason.NOT_FOUND:
                raise error
            if code == -Reason.TIMEOUT:
                raise self._lib.error(code)
        return code

    def _outcome(self, message: ctypes.c_void_p, framework: str) -> Entry:
        matched = self._lib.msg_matched(message)
        try:
            return Entry._of(received.tensors(self._lib, message, framework), matched)
        except Error as error:
            # The entry is not in the buffer any more, so the caller gets it with the error, as tensors of no framework.
            error.entry = Entry._of(received.tensors(self._lib, message, "raw"), matched)  # type: ignore[attr-defined]
            raise


def _left(until: _end.Deadline) -> int:
    """The query's own timeout in ns; never 0, which would be the library's default."""
    return max(until.left, 1_000_000)
