"""A connection to this node's daemon."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from . import _abi, _memory, _values, adopted, completion, region
from ._session import Session
from ._unread import unread
from ._values import Key, Tokens
from .adopted import AdoptedRegion
from .blocks import BlockLists, Packed
from .completion import Completion, Status
from .errors import Closed, Invalid, Unavailable
from .layout import View, check_regions, pack_fingerprint, pack_views
from .lookup import LookupBuffer, open_lookup
from .offer import Offer
from .operation import Operation
from .pipe import Pipe, open_pipe
from .region import Region
from .take import Take

_POLL = 64
# Seconds that close() gives other threads' calls to end. Those that wait in slices need a fraction of it.
_PATIENCE = 5.0
_SIZE = ctypes.sizeof(_abi.Completion)
_O = TypeVar("_O", bound=Operation)


def _take_id(key: bytes, token: bytes) -> int:
    """The id that all parts of one take share, whichever process submits them; never 0."""
    return int.from_bytes(hashlib.blake2b(token + key, digest_size=8).digest(), "little") or 1


class Node:
    """One session, from connect(); a context manager that closes it.

    Any thread may call any method. Methods that wait release the GIL. After a fork, every method raises
    Closed in the child, which must connect for itself.

    A node that nobody holds is closed. Its operations hold it, and so do its pipes and lookup buffers until
    they are closed. Regions do not, so that arrays over their memory may outlive the session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        lib = session.lib
        with session as handle:
            #: the engine's instance
            self.instance: str = lib.instance(handle).decode()
        self._known: Dict[str, str] = {}
        for what in ("node", "advertise"):
            self._ask(what)
        self._spare: List[Any] = []  # room for what poll() finds, zeroed

    def _ask(self, what: str) -> str:
        """What the daemon says of itself; of a session that is closed, what it said last."""
        with contextlib.suppress(Closed), self._session as handle:
            said: bytes = getattr(self._session.lib, what)(handle)
            self._known[what] = said.decode()
        return self._known[what]

    @property
    def name(self) -> str:
        """The node's name."""
        return self._ask("node")

    @property
    def advertise(self) -> str:
        """"host:port" that other nodes dial, or ""; perhaps another one after a restart of the daemon."""
        return self._ask("advertise")

    @property
    def connected(self) -> bool:
        """True while the daemon answers."""
        with contextlib.suppress(Closed), self._session as handle:
            return bool(self._session.lib.connected(handle) == 1)
        return False

    def close(self) -> None:
        """Ends the session and all that it has. Returns when nothing touches its memory any more, or
        after 5 s.

        Other threads' calls that the daemon does not answer have 5 s more to end before that. A call that takes
        longer ends the session when it returns; until then its memory may be touched.
        """
        self._session.close(_PATIENCE)

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session: Any = getattr(self, "_session", None)
        if session is not None:
            session.close(0)

    # ---- memory and layout

    def alloc(self, nbytes: int, *, huge: Optional[bool] = None) -> Region:
        """Allocates, maps and registers ``nbytes`` of shared memory.

        - ``huge``: None takes huge pages if there are any; True insists on them; False never takes them.

        Raises Invalid (a scheduler owns no memory), Quota (no memory, no huge pages, or a limit of the
        daemon), Unavailable (the daemon is away and not back within 5 s, or a sandbox forbids it), or Timeout
        (the daemon does not answer). The text says which.
        """
        self._session.may_own("alloc")
        size = _values.count("alloc: nbytes", nbytes, 1 << 46, "2^46")
        fd, whole = _memory.create(size, None if huge is None else _values.flag("huge", huge))
        try:
            return region.create(self._session, fd, size, whole, fill=True)
        finally:
            os.close(fd)

    def register_fd(self, fd: int, nbytes: int) -> Region:
        """Registers and maps the first ``nbytes`` of a memfd.

        The memfd must be sealed against shrinking and fully allocated (not sparse). The descriptor stays the
        caller's, who may close it. Raises Invalid, which says what is wrong with the memfd, and the errors of
        alloc().
        """
        self._session.may_own("register_fd")
        fd, size = _values.integer("register_fd: fd", fd, 31), _values.integer("register_fd: nbytes", nbytes, 63)
        if size == 0:
            raise Invalid("register_fd: nbytes is 0: must be at least 1")
        try:
            _memory.judge(fd, size)
            whole = _memory.whole_pages(fd, size)
        except OSError as error:
            raise Invalid(f"register_fd: fd {fd}: {error.strerror}") from None
        return region.create(self._session, fd, size, whole, fill=False)

    def adopt(self, memory: Any, quiesced: bool = False) -> AdoptedRegion:
        """Makes a region of memory that already exists, where it is.

        - ``memory``: a contiguous numpy array, torch tensor on the CPU, or writable buffer. The region is
          exactly its bytes. It keeps the object alive until the region's end.
        - ``quiesced``: True says that during the call no thread writes the memory, and no system call does.
          That is needed only where the process may not use userfaultfd; otherwise other threads may go on
          writing, too.

        From now on, even past the region's end and after an adopt() that failed, two things hold for the
        object. Forked children share its memory with the parent instead of getting a copy. And it must never
        be resized (``bytearray.extend``, ``ndarray.resize``): the process would die of SIGBUS in the part
        that grew. Copy it into a new object instead, and let the old one go as usual.

        The memory's pages must hold nothing else. That is so for whole pages and for large allocations:
        always over 32 MiB, and from 128 KiB on with MALLOC_MMAP_THRESHOLD_=131072 in the environment.

        Raises Invalid for other memory (the text says what to do), Busy if it is adopted already, Unavailable
        without userfaultfd or daemon, Timeout (the daemon does not answer), or Quota.
        """
        return adopted.adopt(self._session, memory, _values.flag("quiesced", quiesced))

    def set_layout(self, views: Sequence[View], fingerprint: Optional[Mapping[str, Any]] = None) -> None:
        """Says how this rank's KV lies in its regions. Workers call it once, before their first operation.

        - ``fingerprint``: must agree with the other side's, field by field: model, revision, dtype, layers,
          kv heads, head size, ...

        Raises Invalid, which names the view and what is wrong with it, Unavailable (the daemon is away and not
        back within 5 s), or Timeout (the daemon does not answer; the very same layout may be set again).
        """
        records, fields = pack_views(views), pack_fingerprint(fingerprint)
        with self._session as handle:
            check_regions(views, records, self._session.regions)
            lib = self._session.lib
            lib.check(lib.set_layout(handle, records, len(records), fields, len(fields)))

    def progress(self, n: int, stream: Any = None) -> None:
        """Says how far this rank is. It is a store in shared memory, and never moves back.

        - ``n``: step << 16 | phase; phase is 0 at the start, l + 1 when the rank's l-th layer is written,
          0xffff when saved.
        - ``stream``: for CUDA streams, which this build does not support: None.

        Raises Invalid for a scheduler, which has no rank, and the Error of a session that is over for good.
        """
        if stream is not None:
            raise Unavailable(
                "progress: this build does not support CUDA streams: synchronise the stream, then call without it"
            )
        with self._session as handle:
            self._session.lib.check(self._session.lib.progress(handle, _values.integer("n", n, 64)))

    # ---- tensors

    def pipe(self, name: str, end: str, *, capacity: Optional[int] = None, token: Optional[bytes] = None,
             peer: Optional[str] = None, window: Optional[int] = None, linger: Optional[float] = None) -> Pipe:
        """Opens one end of a pipe. The ends may be opened in any order.

        - ``end``: "send", on the node where the pipe's name lives; or "recv", on that node or another.
        - ``capacity`` (sender): bytes that may be sent and not yet received; None: 64 MiB.
        - ``token``: 16 to 32 bytes that the other end must give, too. None: anybody on this node and its
          peers may open it.
        - ``peer`` (receiver): the sender's node, by name or "host:port"; None: this one.
        - ``window`` (receiver): items that are fetched ahead; None: 64; 1: none. They are lost when this end
          is closed, and so is an item that arrived after the receive that had waited for it.
        - ``linger`` (sender): seconds for which sent items can still be received after the sender is gone;
          None: 10.

        Raises Busy (the name already has such an end, or items of one that is gone still wait; the text says
        for how long), Denied (token), Quota, Unavailable (the daemon is away and not back within 5 s), or
        Timeout (the daemon does not answer).

        After a restart of the daemon, the pipe's calls raise Restarted, and its content is lost. Open it
        again.
        """
        return open_pipe(self, name, end, capacity, token, peer, window, linger)

    def lookup_buffer(self, name: str, *, capacity: Optional[int] = None, token: Optional[bytes] = None,
                      peer: Optional[str] = None, linger: Optional[float] = None) -> LookupBuffer:
        """Opens an end of a lookup buffer: the owner's with ``capacity`` (bytes), a selecting end without it.

        ``token``, ``peer`` and ``linger`` are as for pipe(). Raises what pipe() does.
        """
        return open_lookup(self, name, capacity, token, peer, linger)

    # ---- operations

    def offer(
        self,
        key: Key,
        blocks: BlockLists,
        *,
        tokens: Tokens,
        token: Optional[bytes] = None,
        lease: Optional[float] = 30.0,
        consumers: int = 1,
        after: int = 0,
        sealed: bool = True,
        tag: int = 0,
        trace: Optional[str] = None,
        content: Optional[bytes] = None,
    ) -> Offer:
        """Offers blocks, which cover ``tokens``, under a key. Returns as soon as the daemon can see the
        offer.

        - ``blocks``: the ids of group 0, or one list for each group. Each is a list of int or any buffer of
          32-bit integers, with NO_BLOCK for a position without a block. Lists of paged groups have
          ceil(tokens / block_size) ids.
        - ``token``: 16 to 32 bytes that a taker must present. None draws one, ``offer.token``.
        - ``lease``: seconds for which the offer stands, for a while even if this process dies. None: the
          daemon's ``default_lease``, or 30 s while the daemon is away. A lease longer than the daemon's
          ``max_lease`` (by default 10 minutes) is cut to that.
        - ``consumers``: number of engines that will take it.
        - ``after``: the blocks are ready once every rank's progress has reached it.
        - ``sealed``: False if extend() will add to the offer.
        - ``content``: a digest that the taker must give, too.
        - ``trace``: shown in the logs of both nodes.
        - ``tag``: comes back in completions.

        Raises Invalid (an argument), Busy (the queue was full for 100 ms), Quota (the limit that the text
        names), and the Error of a session that is over: Closed. If the daemon finds something wrong, the
        offer ends, and its wait() raises the error.
        """
        first, count = _values.tokens(tokens)
        lists = Packed(blocks, first, count)
        name, secret, digest = _values.key(key), _values.secret(token), _values.binary("content", content)
        if _values.integer("consumers", consumers) == 0:
            raise Invalid("consumers is 0: must be at least 1")
        opts = _abi.opts(
            _abi.OfferOpts,
            key=name,
            key_len=len(name),
            token=secret,
            token_len=len(secret or b""),
            blocks=lists.array,
            nblocks=lists.count,
            flags=_abi.OP_SEALED if _values.flag("sealed", sealed) else 0,
            consumers=_values.integer("consumers", consumers),
            content=digest,
            content_len=len(digest or b""),
            trace=_values.text("trace", trace),
            after=_values.integer("after", after, 64),
            tag=_values.integer("tag", tag, 64),
            lease_ns=_values.duration("lease", lease),
        )
        return self._submit("offer", opts, lambda number: Offer(self, number, name, opts.lease_ns, first + count))

    def take(
        self,
        key: Key,
        blocks: BlockLists,
        *,
        peer: Optional[str] = None,
        token: bytes,
        tokens: Tokens,
        after: int = 0,
        timeout: Optional[float] = 30.0,
        tag: int = 0,
        trace: Optional[str] = None,
        content: Optional[bytes] = None,
        part: Tuple[int, int] = (0, 1),
        layered: bool = False,
    ) -> Take:
        """Takes the blocks of a key into one's own blocks, which cover ``tokens``.

        - ``peer``: the offering node's name or "host:port". None: this node.
        - ``token``: the offer's.
        - ``tokens``: n, or (start, stop) for the rest of a prompt.
        - ``blocks``: as for offer(). The first id is that of the block in which token ``start`` lies.
        - ``after``: no byte lands before every rank's progress has reached it.
        - ``timeout``: seconds until the take fails, cut to 1 h.
        - ``part``: (i, n), the i-th of n takes that consume the offer together. The engine's processes on
          other nodes may take the other parts.
        - ``layered``: True moves one layer after the other, so that wait_layer() need not wait for all. Any
          number of a session's takes may be layered.

        Raises what offer() does. Any other failure is raised by the take's wait().
        """
        first, count = _values.tokens(tokens)
        lists = Packed(blocks, first, count)
        name, secret, digest = _values.key(key), _values.required_secret(token), _values.binary("content", content)
        number, parts = _values.pair("part", part)
        layered = _values.flag("layered", layered)
        if parts == 0:
            raise Invalid(f"part is {_values.show(part)}: must be (i, n), the i-th of n takes, from 0")
        opts = _abi.opts(
            _abi.TakeOpts,
            key=name,
            key_len=len(name),
            token=secret,
            token_len=len(secret),
            peer=_values.text("peer", peer),
            blocks=lists.array,
            nblocks=lists.count,
            flags=_abi.OP_LAYERED if layered else 0,
            part=number,
            parts=parts,
            take_id=_take_id(name, secret) if parts > 1 else 0,
            content=digest,
            content_len=len(digest or b""),
            trace=_values.text("trace", trace),
            after=_values.integer("after", after, 64),
            tag=_values.integer("tag", tag, 64),
            timeout_ns=_values.duration("timeout", timeout),
        )
        ids = lists.copy()
        return self._submit("take", opts, lambda number: Take(self, number, name, opts.timeout_ns, ids, layered))

    def watch(self, key: Key, peer: Optional[str], token: bytes, *, timeout: Optional[float] = None, tag: int = 0,
              trace: Optional[str] = None) -> Operation:
        """Keeps an offer alive for a request that has no blocks yet, for ``timeout`` seconds (None: 30; cut
        to 1 h).

        Done once there is an offer. Raises what offer() does. Any other failure is raised by its wait().
        """
        return self._about("watch", key, peer, token, timeout, tag, trace)

    def drop(self, key: Key, peer: Optional[str], token: bytes, *, timeout: Optional[float] = None, tag: int = 0,
             trace: Optional[str] = None) -> Operation:
        """Says that nothing of an offer is needed, so its producer's blocks are free at once.

        ``timeout``: seconds until it fails (None: 5; cut to 1 h). Raises what offer() does. Any other failure
        is raised by its wait().
        """
        return self._about("drop", key, peer, token, timeout, tag, trace)

    def _about(self, what: str, key: Key, peer: Optional[str], token: bytes, timeout: Optional[float], tag: int,
               trace: Optional[str]) -> Operation:
        name, secret = _values.key(key), _values.required_secret(token)
        opts = _abi.opts(
            _abi.KeyOpts,
            key=name,
            key_len=len(name),
            token=secret,
            token_len=len(secret),
            peer=_values.text("peer", peer),
            trace=_values.text("trace", trace),
            tag=_values.integer("tag", tag, 64),
            timeout_ns=_values.duration("timeout", timeout),
        )
        return self._submit(what, opts, lambda number: Operation(self, number, name, opts.timeout_ns))

    def _submit(self, what: str, opts: ctypes.Structure, made: Callable[[int], _O]) -> _O:
        number = ctypes.c_uint64()
        session, lib = self._session, self._session.lib
        with session.submitting, session as handle:
            session.reap(handle)
            before = session.under_way
            try:
                session.under_way = before + 1
                lib.check(getattr(lib, what)(handle, ctypes.byref(opts), ctypes.byref(number)))
                return self._keep(made(number.value))
            except BaseException:
                if number.value:  # a signal handler raised since: nobody could end it any more
                    end = lib.offer_withdraw if what == "offer" else lib.cancel
                    end(handle, number.value, _abi.NOWAIT, ctypes.byref(ctypes.c_int()))
                raise
            finally:
                session.under_way = before
                session.sort_out()

    def _keep(self, operation: _O) -> _O:
        self._session.operations[operation._id] = operation
        return operation

    # ---- completions

    def poll(self) -> List[Completion]:
        """All completions that are there, oldest first, each once. Does not wait.

        They include those of operations that the engine's scheduler submitted and this rank took part in.
        They do not include what an operation has already told:

        - its end, by wait(), wait_async(), ``done``, ``completion``, ``failed_blocks``, or a wait_layer()
          that failed or whose take is not ``layered``;
        - its RELEASED, by wait_released().

        When the session is over for good (the daemon ended it, or a restarted one refused it) and all
        completions were collected, its Error is raised.
        """
        out: List[Completion] = []
        over: List[int] = []  # operations to forget, once all of their completions that are there were given out
        session, lib = self._session, self._session.lib
        try:
            raws = self._spare.pop()
        except IndexError:  # the first call, or another one has it
            raws = (_abi.Completion * _POLL)()
        with session as handle:
            more = True
            while more:  # once more, as the RELEASED of one that is to be forgotten may have come meanwhile
                known = len(over)
                count = self._collect(handle, raws, out, over)
                more = count == _POLL or len(over) > known
            if not out:  # else the next call raises it
                lib.check(count)
            session.unsure.extend(over)
            session.sort_out()
            session.reap(handle)
        self._spare.append(raws)
        return out

    def _collect(self, handle: int, raws: Any, out: List[Completion], over: List[int]) -> int:
        outer = unread.raws
        try:
            unread.raws = raws
            count: int = self._session.lib.poll(handle, raws, _POLL)
            if count > 0:
                for raw in raws[:count]:
                    end = self._read(raw)
                    out.append(end)
                    # Its RELEASED has come here, or wait_released() had it; or it may be what is being submitted.
                    if raw.op and end.op is None and (
                            end.released or self._session.under_way or self._session.lib.op_released(handle, raw.op) == 1):
                        over.append(raw.op)
        finally:
            unread.raws = outer
        if count > 0:
            ctypes.memset(raws, 0, count * _SIZE)
        return count

    def _read(self, raw: _abi.Completion) -> Completion:
        operation: Optional[Operation] = None
        if raw.op:
            operation = self._session.operations.get(raw.op)
            if operation is None:
                with self._session.submitting:  # another thread may be about to enter it
                    operation = self._session.operations.get(raw.op)
        end = completion.read(raw, operation)
        if operation is not None:
            if end.terminal:
                operation._settle(end)
            elif end.status == Status.RELEASED:
                operation._free()
        return end

    def fileno(self) -> int:
        """A descriptor for select, epoll and loop.add_reader(): readable when poll() may have something to
        report.

        Once the session is over it stays readable, and add_reader() calls until remove_reader(). Do not close
        it.
        """
        with self._session as handle:
            return self._session.lib.check(self._session.lib.fd(handle))

    def __repr__(self) -> str:
        state = " closed" if self._session.closed else ""
        return f"<kvpipe.Node {self.name!r}{state}>"
