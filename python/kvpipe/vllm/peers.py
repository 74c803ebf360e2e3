"""One line in the log for each peer, at its first load: which transport, how fast, why no better one."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import stat
import struct
import threading
from typing import Any, Dict, List, Optional, Set
from urllib.parse import quote

logger = logging.getLogger("vllm.kvpipe")

_SECONDS = 5.0
_SYSTEM = "/run/kvpipe/admin.sock"


def _in_tmp() -> str:
    return f"/tmp/kvpipe-{os.geteuid()}"


def places(session_socket: str) -> List[str]:
    """Where the daemon's admin socket may be, by kvpipectl's rule: as told; beside the session's, if that is named; else that of the node's
    service, then that of the development daemon."""
    told = os.environ.get("KVPIPE_ADMIN")
    if told:
        return [told]
    if session_socket:
        return [os.path.join(os.path.dirname(session_socket), "admin.sock")]
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    dev = os.path.join(run, "kvpipe") if os.path.isabs(run) else _in_tmp()
    return [_SYSTEM, os.path.join(dev, "admin.sock")]


def _below(path: str) -> bool:
    """Whether the path leads into it, however it is spelled."""
    return os.path.abspath(path).startswith(_in_tmp() + "/")


def _anybodys(path: str) -> bool:
    """Whether it lies below the folder in /tmp, and that is not ours alone. Anybody may make such a folder, and answer there."""
    if not _below(path):
        return False
    try:
        seen = os.lstat(_in_tmp())
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) != 0o700


def _somebody_elses(path: str, sock: socket.socket) -> bool:
    """Whether another user listens below that folder, whatever the folder looked like a moment ago."""
    if not _below(path):
        return False
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid != os.geteuid())


_NOBODY = (FileNotFoundError, NotADirectoryError, ConnectionRefusedError)


def _engines_pass(path: str) -> bool:
    """Whether the library, too, finds no daemon for this user in that admin socket's place."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(_SECONDS)
        try:
            sock.connect(os.path.join(os.path.dirname(path), "kvpiped.sock"))
        except OSError as error:
            return isinstance(error, (*_NOBODY, PermissionError))
    return False


def connect(paths: List[str]) -> socket.socket:
    """Connects to the first place at which somebody listens, by the library's rule. A place is passed over when nothing is there, or only
    what a dead daemon left behind; when it could be a stranger's; and when it is not for us, which is said if nobody listens elsewhere."""
    nobody: OSError = OSError("no place to look at")
    barred: Optional[OSError] = None
    for path in paths:
        if _anybodys(path):
            nobody = PermissionError(f"{_in_tmp()} is not this user's alone, with mode 0700: remove it")
            continue
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(_SECONDS)
        try:
            sock.connect(path)
            if not _somebody_elses(path, sock):
                return sock
            sock.close()
            nobody = PermissionError(f"{path}: another user listens there: remove {_in_tmp()}")
        except _NOBODY as error:
            sock.close()
            nobody = error
        except OSError as error:
            sock.close()
            if len(paths) == 1 or not isinstance(error, PermissionError) or not _engines_pass(path):
                raise
            barred = barred or error
    raise barred or nobody


class Peers:
    """What the daemon knows is on its admin socket, which the engine may not be allowed to open: then the line has less. Asked by a
    thread of its own, so that no hook waits."""

    def __init__(self, node: str, session_socket: str, wanted: bool) -> None:
        self._node, self._wanted = node, wanted
        self._places = places(session_socket or os.environ.get("KVPIPE_SOCKET", ""))
        self._peers: Set[str] = set()

    def met(self, peer: str, rate: float) -> None:
        """A load of this peer's KV succeeded, at so many bytes a second."""
        if peer in self._peers:
            return
        self._peers.add(peer)
        if self._wanted:
            try:
                threading.Thread(target=self._say, args=(peer, rate), name="kvpipe-peer", daemon=True).start()
            except RuntimeError as error:  # the system gives no thread: the load is none the worse for it
                self._tell(peer, unasked(peer, rate, error))

    def _say(self, peer: str, rate: float) -> None:
        try:
            told = line(self._ask(peer), rate)
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            told = unasked(peer, rate, error)
        self._tell(peer, told)

    def _tell(self, peer: str, told: str) -> None:
        logger.info("kvpipe: %s -> %s: %s", peer, self._node, told)

    def _ask(self, peer: str) -> Dict[str, Any]:
        connection = http.client.HTTPConnection("kvpiped", timeout=_SECONDS)
        with connect(self._places) as sock:
            connection.sock = sock
            connection.request("GET", f"/v1/explain?peer={quote(peer, safe='')}")
            answer: Dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def unasked(peer: str, rate: float, why: Exception) -> str:
    return f'first load at {rate / 1e9:.3g} GB/s; "kvpipectl explain {peer}" says by which transport ({why})'


def line(explained: Dict[str, Any], rate: float) -> str:
    """ "tcp, 5.1 GB/s measured; rdma refused: no device" """
    measured = float(explained.get("gbps") or 0) or rate / 1e9
    parts = [f"{explained['transport'] or 'no transport'}, {measured:.3g} GB/s measured"]
    for tried in explained.get("choices") or ():
        if tried["transport"] == explained["transport"]:
            break
        parts.append(f"{tried['transport']} {tried['answer']}" + (f": {tried['reason']}" if tried.get("reason") else ""))
    return "; ".join(parts)
