"""A data plane for vLLM's tier of offloaded KV that lies with peers (v1/kv_offload/tiering/p2p), by the node's kvpiped.

vLLM's transports write into a peer's blocks; a daemon writes only into blocks that its own engine named. So a write is an
offer of the local blocks, and a word to the peer, through a pipe, which then takes them into its own. There is no thread:
poll() on both sides moves everything on, as vLLM does in every step of a session.
"""

from __future__ import annotations

import array
import hashlib
import json
import secrets
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from .. import Error, Node, Offer, Pipe, Region, Status, Take, Timeout, View, connect
from . import compat

_Transport: Any = compat.data_transport()[0]
_PollResult: Any = compat.data_transport()[1]


class _Peer:
    """What is open to a peer."""

    def __init__(self, node: Node, mine: str, about: Dict[str, Any], token: bytes, num_blocks: int) -> None:
        self.id, self.token, self.num_blocks = str(about["id"]), token, num_blocks
        self.where = None if about["node"] == node.name else str(about["address"] or about["node"])
        self.takes: Dict[int, Take] = {}
        self.refusals: List[int] = []
        self.gone = False
        self.tell: Pipe = node.pipe(f"tier/{mine}/{self.id}", "send", token=token)
        try:
            self.hear: Pipe = node.pipe(f"tier/{self.id}/{mine}", "recv", token=token, peer=self.where)
        except Error:
            self.tell.close()
            raise

    def close(self) -> None:
        for take in self.takes.values():
            _ask(take.cancel)
        self.tell.close()
        self.hear.close()


class _Write(NamedTuple):
    peer_id: str
    peer: _Peer
    offer: Offer
    over: float  # when the peer has given it up, whatever is heard


class KVPipeTransport(_Transport):  # type: ignore[misc]
    """vLLM's DataTransport. Called by one thread.

    - ``view``: two dimensions, blocks of bytes: of a kvpipe.Region, or private memory of the process, which is adopted.
    - ``config_fields``: what peers must have in common; None: any.
    - ``socket``: the daemon's. ``timeout``: seconds after which a write that the peer does not take has failed.

    Raises kvpipe.Error when there is no daemon, or the memory cannot be its.
    """

    def __init__(self, view: memoryview, config_fields: Optional[Dict[str, Any]] = None, *, socket: Optional[str] = None,
                 timeout: float = 30.0) -> None:
        super().__init__(view, config_fields)
        self._id, self._secret, self._timeout = secrets.token_hex(8), secrets.token_bytes(16), timeout
        self._peers: Dict[str, _Peer] = {}
        self._writes: Dict[int, _Write] = {}
        self._refused: Dict[int, bool] = {}
        self._count = 0
        self._node = connect(socket, engine_id=f"tier-{self._id}")
        region = view.obj if isinstance(view.obj, Region) else self._node.adopt(view)
        size = self.block_len
        self._node.set_layout([View(region, self.base_addr - region.address, num_blocks=self.num_blocks, block_stride=size,
                                    block_size=1, strides=(size, size), content_bytes=size)], {"block_len": size})

    def get_agent_metadata(self) -> bytes:
        """Who and where this side is, as JSON; it holds a secret, for peers alone."""
        return json.dumps({"v": 1, "id": self._id, "node": self._node.name, "address": self._node.advertise,
                           "secret": self._secret.hex(), "fingerprint": self.config_fingerprint}).encode()

    def add_remote_peer(self, peer_id: str, agent_metadata: bytes, base_addr: int, num_blocks: int, block_len: int) -> None:
        """Opens the pipes to a peer; it does the same. Raises ValueError, as vLLM expects, for one that does not fit."""
        about = self._read(agent_metadata)
        if block_len != self.block_len:
            raise ValueError(f"kvpipe: {peer_id} has blocks of {block_len} bytes, here they have {self.block_len}")
        theirs = about["fingerprint"]
        if theirs and self.config_fingerprint and theirs != self.config_fingerprint:
            raise ValueError(f"kvpipe: {peer_id} has fingerprint {theirs}, here it is {self.config_fingerprint}")
        both = sorted([self._secret, bytes.fromhex(about["secret"])])
        self.remove_remote_peer(peer_id)
        try:
            self._peers[peer_id] = _Peer(self._node, self._id, about, hashlib.blake2b(b"".join(both), digest_size=16).digest(),
                                         num_blocks)
        except Error as error:
            raise ValueError(f"kvpipe: {peer_id}: {error}") from None

    @staticmethod
    def _read(metadata: bytes) -> Dict[str, Any]:
        try:
            about = json.loads(metadata)
            if about["v"] == 1 and len(bytes.fromhex(about["secret"])) == 16 and all(
                    isinstance(about[k], str) for k in ("id", "node", "address", "fingerprint")):
                return dict(about)
        except (ValueError, KeyError, TypeError):
            pass
        raise ValueError("kvpipe: the peer's metadata is not of a KVPipeTransport of this release")

    def remove_remote_peer(self, peer_id: str) -> None:
        """Ends what goes on with the peer, and forgets its writes."""
        self.cancel([number for number, w in self._writes.items() if w.peer_id == peer_id])
        peer = self._peers.pop(peer_id, None)
        if peer is not None:
            peer.close()

    def write_blocks(self, peer_id: str, local_idxs: List[int], remote_idxs: List[int]) -> Optional[int]:
        """Offers the local blocks to the peer, and returns the write's number; None when that cannot be done."""
        peer = self._peers.get(peer_id)
        if peer is None or peer.gone or not local_idxs or len(local_idxs) != len(remote_idxs):
            return None
        if not all(0 <= i < self.num_blocks for i in local_idxs) or not all(0 <= i < peer.num_blocks for i in remote_idxs):
            return None
        self._count += 1
        number = self._count
        try:
            offer = self._node.offer(f"tier/{self._id}/{number}", list(local_idxs), tokens=len(local_idxs), token=peer.token,
                                     lease=self._timeout)
        except Error:
            return None
        try:
            peer.tell.send_tensor(array.array("q", [number, *remote_idxs]), timeout=0)
        except Error:
            _ask(offer.withdraw)
            return None
        self._writes[number] = _Write(peer_id, peer, offer, time.monotonic() + 2 * self._timeout)
        return number

    def poll(self, peer_id: Optional[str] = None) -> Any:
        """Takes what peers write here, and tells which of our writes are over: done when their bytes are in place there."""
        for name, peer in self._peers.items():
            if peer_id is None or name == peer_id:
                self._hear(peer)
                self._serve(peer)
        done: List[int] = []
        failed: List[int] = []
        for number, write in list(self._writes.items()):
            if peer_id is None or write.peer_id == peer_id:
                good = self._over(number, write)
                if good is not None:
                    (done if good else failed).append(number)
                    self._forget(number)
        return _PollResult(done, failed)

    def _hear(self, peer: _Peer) -> None:
        while not peer.gone:
            try:
                words = array.array("q", bytes(peer.hear.recv_tensor(timeout=0, framework="raw").data))
            except Timeout:
                return
            except Error:
                peer.gone = True
                return
            number, blocks = words[0], words[1:].tolist()
            if number < 0:
                self._refused[-number] = True
                continue
            try:
                peer.takes[number] = self._node.take(f"tier/{peer.id}/{number}", blocks, peer=peer.where, token=peer.token,
                                                     tokens=len(blocks), timeout=self._timeout)
            except Error:
                peer.refusals.append(number)

    def _serve(self, peer: _Peer) -> None:
        """Tells the peer of takes that failed, once no byte of them lands any more."""
        for number, take in list(peer.takes.items()):
            end = take.completion
            if end is not None and take.released:
                del peer.takes[number]
                if end.status != Status.DONE:
                    peer.refusals.append(number)
        try:
            while peer.refusals and not peer.gone:
                peer.tell.send_tensor(array.array("q", [-peer.refusals[0]]), timeout=0)
                peer.refusals.pop(0)
        except Timeout:
            pass  # no room: at the next poll
        except Error:
            peer.gone = True

    def _over(self, number: int, write: _Write) -> Optional[bool]:
        """Whether it went well; None: it is not over. A write that failed may be landing until the peer says otherwise."""
        end = write.offer.completion
        if end is not None and end.status == Status.DONE:
            return True if write.offer.released else None
        if not (number in self._refused or write.peer.gone or time.monotonic() >= write.over):
            return None
        if end is None:
            _ask(write.offer.withdraw)
        return False if write.offer.released else None

    def cancel(self, transfer_ids: Iterable[int], mode: str = "immediate") -> List[int]:
        """Withdraws writes. mode "wait": returns those that the peer may still receive bytes of; poll() gives their end."""
        running = []
        for number in transfer_ids:
            write = self._writes.get(number)
            if write is None:
                continue
            if write.offer.completion is None:
                _ask(write.offer.withdraw)
            end = write.offer.completion
            if mode == "wait" and not (end is not None and end.status == Status.DONE and write.offer.released):
                running.append(number)
            else:
                self._forget(number)
        return running

    def _forget(self, number: int) -> None:
        self._writes.pop(number, None)
        self._refused.pop(number, None)

    def close(self) -> None:
        """Ends everything; the memory is the caller's alone then. A second call does nothing."""
        for peer_id in list(self._peers):
            self.remove_remote_peer(peer_id)
        self._node.close()


def _ask(end: Any) -> None:
    """Asks for an operation's end without waiting; what is over already needs none."""
    try:
        end(0)
    except Error:
        pass
