"""A data plane for vLLM's tier of offloaded KV that lies with peers (v1/kv_offload/tiering/p2p), by the node's kvpiped.

vLLM's transports write into a peer's blocks; a daemon writes only into blocks that its own engine named. So a write is an
offer of the local blocks and a message to the peer through a pipe; the peer then takes them into its own blocks. There is no
thread: poll() on both sides moves everything on, which vLLM calls in every step of a session.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from .. import Error, Offer, Region, Status, View, connect
from . import compat
from .guard import ask
from .tierpeer import Peer, read

_Transport: Any = compat.data_transport()[0]
_PollResult: Any = compat.data_transport()[1]


class _Write(NamedTuple):
    peer: Peer
    offer: Offer
    over: float  # by when the peer has given it up, whatever is heard


class KVPipeTransport(_Transport):  # type: ignore[misc]
    """vLLM's DataTransport. Called by one thread.

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
        self._writes: Dict[int, _Write] = {}
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
        about = read(agent_metadata)
        if block_len != self.block_len:
            raise ValueError(f"kvpipe: {peer_id} has blocks of {block_len} bytes, here they have {self.block_len}")
        theirs = about["fingerprint"]
        if theirs and self.config_fingerprint and theirs != self.config_fingerprint:
            raise ValueError(f"kvpipe: {peer_id} has fingerprint {theirs}, here it is {self.config_fingerprint}")
        both = sorted([self._secret, bytes.fromhex(about["secret"])])
        self.remove_remote_peer(peer_id)
        try:
            self._peers[peer_id] = Peer(self._node, self._id, about, hashlib.blake2b(b"".join(both), digest_size=16).digest(),
                                        num_blocks, self._timeout)
        except Error as error:
            raise ValueError(f"kvpipe: {peer_id}: {error}") from None

    def remove_remote_peer(self, peer_id: str) -> None:
        """Ends what goes on with the peer, and forgets its writes."""
        self.cancel([number for number, write in self._writes.items() if write.peer is self._peers.get(peer_id)])
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
            peer.tell(number, list(remote_idxs))
        except Error:
            ask(offer.withdraw)
            return None
        self._writes[number] = _Write(peer, offer, time.monotonic() + 2 * self._timeout)
        return number

    def poll(self, peer_id: Optional[str] = None) -> Any:
        """Takes what peers write here, and tells which of our writes are over: done when their bytes are in place there."""
        with contextlib.suppress(Error):
            self._node.poll()  # also of what nobody asks after any more: uncollected, it would fill the session
        peers = [peer for name, peer in self._peers.items() if peer_id in (None, name)]
        for peer in peers:
            peer.hear()
            peer.refused &= self._writes.keys()  # a write may be forgotten before its refusal comes
            peer.serve()
        done: List[int] = []
        failed: List[int] = []
        for number, write in list(self._writes.items()):
            good = self._over(number, write) if write.peer in peers else None
            if good is not None:
                (done if good else failed).append(number)
                self._forget(number)
        return _PollResult(done, failed)

    def _over(self, number: int, write: _Write) -> Optional[bool]:
        """Whether it went well; None: it is not over. A write that failed may be landing until the peer says otherwise."""
        end = write.offer.completion
        good = end is not None and end.status == Status.DONE
        if not good and not (number in write.peer.refused or write.peer.gone or time.monotonic() >= write.over):
            return None
        if end is None:
            ask(write.offer.withdraw)
        return good if write.offer.released else None

    def cancel(self, transfer_ids: Iterable[int], mode: str = "immediate") -> List[int]:
        """Withdraws writes. mode "wait": returns those that the peer may still receive bytes of; poll() gives their end."""
        running = []
        for number in transfer_ids:
            write = self._writes.get(number)
            if write is None:
                continue
            if write.offer.completion is None:
                ask(write.offer.withdraw)
            end = write.offer.completion
            if mode == "wait" and not (end is not None and end.status == Status.DONE and write.offer.released):
                running.append(number)
            else:
                self._forget(number)
        return running

    def _forget(self, number: int) -> None:
        self._writes.pop(number).peer.refused.discard(number)

    def close(self) -> None:
        """Ends everything; the memory is the caller's alone then. A second call does nothing."""
        for peer_id in list(self._peers):
            self.remove_remote_peer(peer_id)
        self._node.close()
