"""Opening a session."""

from __future__ import annotations

import ctypes
import os
from typing import Optional, Tuple

from . import _abi, _said, _values
from ._library import library
from ._session import Session
from .errors import Invalid
from .node import Node


def connect(
    socket: Optional[str] = None,
    *,
    engine_id: str,
    instance: Optional[str] = None,
    role: str = "worker",
    rank: Tuple[int, int] = (0, 0),
    world: Tuple[int, int] = (1, 1),
    cq_entries: int = 4096,
    timeout: Optional[float] = None,
) -> Node:
    """Opens a session with the node's daemon, within ``timeout`` seconds (None: 5).

    - ``socket``: its path. None: ``KVPIPE_SOCKET``, then /run/kvpipe/kvpiped.sock, then that of `kvpiped
      --dev`.
    - ``engine_id``: names one serving instance, data-parallel rank included.
    - ``instance``: names one start of it. None: joins the live instance of the same engine and owner, or
      begins a new one.
    - ``role``: a "worker" owns the memory and blocks of one ``rank``, which is (tp, pp) of ``world``. A
      "scheduler" owns none; it offers and takes for all ranks of its engine on this node.
    - ``cq_entries``: completions that the session has room for, a power of two from 8 to 65536. At most a
      third of them can be unreleased operations. More entries take more of the daemon's memory
      (``limits.ring_memory``).

    Raises Unavailable (no daemon, or one that does not answer in time), Denied (no permission for the
    socket), Incompatible (versions, or a ``world`` that the instance's other ranks do not have), Busy (that
    rank of that instance has a session), Closed (another instance has replaced the one that is named), or
    Quota (the limit that the text names).
    """
    kind = _abi.ROLES[_values.one_of("connect: role", role, _abi.ROLES)]
    try:
        path = os.fspath(socket) if socket is not None else None
    except TypeError:
        raise Invalid(f"connect: socket is {_values.show(socket)}: must be a path") from None
    tp_rank, pp_rank = _values.pair("rank", rank)
    tp_world, pp_world = _values.pair("world", world)
    if tp_world < 1 or pp_world < 1 or tp_rank >= tp_world or pp_rank >= pp_world:
        raise Invalid(f"connect: rank {tp_rank, pp_rank} of world {tp_world, pp_world}: must be below it, from 0")
    entries = _values.integer("connect: cq_entries", cq_entries)
    if not 8 <= entries <= 65536 or entries & (entries - 1):
        raise Invalid(f"connect: cq_entries is {_values.show(cq_entries)}: must be a power of two from 8 to 65536")
    opts = _abi.opts(
        _abi.ConnectOpts,
        socket=_values.text("socket", path),
        engine_id=_values.text("engine_id", engine_id),
        instance=_values.text("instance", instance),
        role=kind,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        tp_world=tp_world,
        pp_world=pp_world,
        cq_entries=entries,
        timeout_ns=_values.duration("timeout", timeout),
    )
    lib = library()
    handle = ctypes.c_void_p()
    try:
        with _said.call(lib):
            lib.check(lib.connect(ctypes.byref(opts), ctypes.byref(handle)))
    except BaseException:
        if handle.value is not None:  # a signal handler raised as the call returned
            lib.close(handle)
        raise
    assert handle.value is not None
    session = Session(lib, handle.value)
    session.owns_memory = kind != _abi.ROLES["scheduler"]
    return Node(session)
