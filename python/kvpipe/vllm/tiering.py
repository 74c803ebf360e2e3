"""A data plane for vLLM's tier of offloaded KV that lies with peers (v1/kv_offload/tiering/p2p), by the node's kvpiped.

vLLM's transports write into a peer's blocks; a daemon writes only into blocks that its own engine named. So a write is an
offer of the local blocks and a message to the peer through a pipe; the peer then takes them into its own blocks. There is no
thread: poll() on both sides moves everything on, which vLLM calls in every step of a session.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, Optional

from .. import Error, Region, View, connect
from . import compat
from .submissions import Submissions
from .tierpeer import Peer, read
from .tierwrites import Writes

_Transport: Any = compat.data_transport()[0]
_PollResult: Any = compat.data_transport()[1]


class KVPipeTransport(_Transport):  # type: ignore[misc]
    """vLLM's DataTransport. Called by one thread. Nothing waits for a daemon, but for the start, the end, add_remote_peer(), and
    remove_remote_peer() while something is being written here.

    - ``view``: two dimensions, blocks of bytes: of a kvpipe.Region, or private memory of the process, which is adopted.
    - ``config_fields``: what peers must have in common; None: any.
    - ``socket``: the daemon's. ``timeout``: seconds after which a write that the peer does not take has failed.

    Raises kvpipe.Error when there is no daemon, or it cannot have the memory.
    """

    def __init__(self, view: memoryview, config_fields: Optional[Dict[str, Any]] = None, *, socket: Optional[str] = None,
                 timeout: float = 30.0) -> None:
        super().__init__(view, config_fields)
        self._id, self._secret, self._timeout = secrets.token_hex(8), secrets.token_bytes(16), timeout
        self._peers: Dict[str, Peer] = {}
        self._submissions = Submissions()
        self._writes = Writes(self._submissions)
        self._count = 0
        self._over = ""  # why nothing can be written any more at all
        self._node = connect(socket, engine_id=f"tier-{self._id}")
        region = view.obj if isinstance(view.obj, Region) else self._node.adopt(view)
        size = self.block_len
        self._node.set_layout([View(region, self.base_addr - region.address, num_blocks=self.num_blocks, block_stride=size,
                                    block_size=1, strides=(size, size), content_bytes=size)], {"block_len": size})
        self._opener = ThreadPoolExecutor(1, "kvpipe-tier")  # opens pipes and closes them, which waits for the daemon, one after the other

    def get_agent_metadata(self) -> bytes:
        """Who and where this side is, as JSON; it holds a secret, for peers alone."""
        return json.dumps({"v": 1, "id": self._id, "node": self._node.name, "address": self._node.advertise,
                           "secret": self._secret.hex(), "fingerprint": self.config_fingerprint}).encode()

    def add_remote_peer(self, peer_id: str, agent_metadata: bytes, base_addr: int, num_blocks: int, block_len: int) -> None:
        """Opens the pipes to a peer; it does the same. Raises ValueError, as vLLM expects, for one that does not fit."""
        self.add_remote_peer_async(peer_id, agent_metadata, base_addr, num_blocks, block_len).result()

    def add_remote_peer_async(self, peer_id: str, agent_metadata: bytes, base_addr: int, num_blocks: int,
                              block_len: int) -> "Future[None]":
        """The same without waiting, unless the peer is there already: remove_remote_peer() comes first. vLLM calls it since 0.33."""
        try:
            peer = self._peer(peer_id, read(agent_metadata), num_blocks, block_len)
        except ValueError as error:
            refused: "Future[None]" = Future()
            refused.set_exception(error)
            return refused
        self.remove_remote_peer(peer_id)
        self._peers[peer_id] = peer
        return self._opener.submit(peer.open, peer_id)

    def _peer(self, peer_id: str, about: Dict[str, Any], num_blocks: int, block_len: int) -> Peer:
        if block_len != self.block_len:
            raise ValueError(f"kvpipe: {peer_id} has blocks of {block_len} bytes, here they have {self.block_len}")
        theirs = about["fingerprint"]
        if theirs and self.config_fingerprint and theirs != self.config_fingerprint:
            raise ValueError(f"kvpipe: {peer_id} has fingerprint {theirs}, here it is {self.config_fingerprint}")
        both = sorted([self._secret, bytes.fromhex(about["secret"])])
        token = hashlib.blake2b(b"".join(both), digest_size=16).digest()
        return Peer(self._node, self._submissions, self._id, about, token, num_blocks, self._timeout, self._opener.submit)

    def remove_remote_peer(self, peer_id: str) -> None:
        """Ends what goes on with the peer, and forgets its writes. Returns when nothing of it lands here any more: vLLM then uses the
        blocks for something else."""
        peer = self._forget(peer_id)
        if peer is not None:
            peer.wait(peer_id)
            self._opener.submit(peer.shut)  # not before, as to the peer it means that nothing lands here

    def _forget(self, peer_id: str) -> Optional[Peer]:
        peer = self._peers.pop(peer_id, None)
        if peer is not None:
            for number in self._writes.of(peer):
                self._writes.forget(number)
            peer.end()
        return peer

    def write_blocks(self, peer_id: str, local_idxs: List[int], remote_idxs: List[int]) -> Optional[int]:
        """Offers the local blocks to the peer, and returns the write's number; None when that cannot be done."""
        peer = self._peers.get(peer_id)
        if peer is None or not peer.usable or not local_idxs or len(local_idxs) != len(remote_idxs):
            return None
        if not all(0 <= i < self.num_blocks for i in local_idxs) or not all(0 <= i < peer.num_blocks for i in remote_idxs):
            return None
        self._count += 1
        number = self._count
        try:
            offer = self._submissions.make(self._node.offer, f"tier/{self._id}/{number}", list(local_idxs), tokens=len(local_idxs),
                                           token=peer.token, lease=self._timeout)
        except Error:
            return None
        self._writes.add(number, peer, offer, 2 * self._timeout)
        if peer.tell(number, list(remote_idxs)):
            return number
        self._writes.forget(number)
        return None

    def poll(self, peer_id: Optional[str] = None) -> Any:
        """Takes what peers write here, and tells which of our writes are over: done when their bytes are in place there. Asked of one
        peer, also why nothing can be written to it any more, where vLLM hears of that (since 0.33): it then connects anew."""
        try:
            self._node.poll()  # also of what nobody asks after any more: uncollected, it would fill the session
        except Error as error:
            self._over = str(error)
        peers = {name: peer for name, peer in self._peers.items() if peer_id in (None, name)}
        for peer in peers.values():
            peer.hear()
            peer.refused = {number for number in peer.refused if number in self._writes}  # it may be forgotten before its refusal comes
            peer.serve()
        done, failed = self._writes.ended(peers.values())
        if len(_PollResult._fields) == 2:
            return _PollResult(done, failed)
        return _PollResult(done, failed, (peers[peer_id].fault or self._over or None) if peer_id in peers else None)

    def cancel(self, transfer_ids: Iterable[int], mode: str = "immediate") -> List[int]:
        """Withdraws writes. mode "wait": returns those that the peer may still receive bytes of; poll() gives their end."""
        running = []
        for number in transfer_ids:
            if number in self._writes:
                if mode == "wait" and self._writes.stop(number):
                    running.append(number)
                else:
                    self._writes.forget(number)
        return running

    def close(self) -> None:
        """Ends everything; the memory is the caller's alone then. A second call does nothing."""
        for peer_id in list(self._peers):
            self._forget(peer_id)
        self._node.close()
        self._opener.shutdown()
