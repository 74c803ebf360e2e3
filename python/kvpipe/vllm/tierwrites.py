"""What a side of vLLM's tier of offloaded KV writes to its peers, until it is known how that ended."""

from __future__ import annotations

import time
from typing import Container, Dict, List, NamedTuple, Optional, Tuple

from .. import Error, Offer, Status
from .stopping import Stopping
from .submissions import Submissions
from .tierpeer import Peer


class _Write(NamedTuple):
    peer: Peer
    operation: Offer
    over: float  # by when the peer has given it up, whatever is heard
    wanted: bool = True  # else it is forgotten once it is withdrawn


class Writes:
    """Those of one transport, by number. Called by one thread."""

    def __init__(self, submissions: Submissions) -> None:
        self._all: Dict[int, _Write] = {}
        self._stopping = Stopping(self._all, submissions)

    def __contains__(self, number: int) -> bool:
        return number in self._all

    def add(self, number: int, peer: Peer, offer: Offer, seconds: float) -> None:
        self._all[number] = _Write(peer, offer, time.monotonic() + seconds)

    def of(self, peer: Peer) -> List[int]:
        """Numbers of those to this peer."""
        return [number for number, write in self._all.items() if write.peer is peer]

    def ended(self, peers: Container[Peer]) -> Tuple[List[int], List[int]]:
        """Of those to these peers, which are over: (done, failed), each once."""
        self._stopping.again()
        done: List[int] = []
        failed: List[int] = []
        for number, write in list(self._all.items()):
            if not write.wanted:
                self.forget(number)
                continue
            good = self._good(number, write) if write.peer in peers else None
            if good is not None:
                (done if good else failed).append(number)
                self._drop(number)
        return done, failed

    def _good(self, number: int, write: _Write) -> Optional[bool]:
        """Whether it went well; None: it is not over. A write that failed may be landing until the peer says otherwise. One that is lost
        does not: vLLM ends the session with it, and the peer, told of that, waits for what lands."""
        late = time.monotonic() >= write.over
        try:
            end = write.operation.completion
            if end is not None and end.status == Status.DONE:
                return True if write.operation.released else None
            ends = number in write.peer.refused or write.peer.left or late
            if end is None and (ends or write.peer.fault):
                self._stopping.stop(number)
            return False if ends and write.operation.released else None
        except Error:  # the session is over
            return False if late else None

    def stop(self, number: int) -> bool:
        """Withdraws one. Returns whether the peer may still receive bytes of it; ended() then gives its end."""
        try:
            end = self._all[number].operation.completion
            if end is None:
                self._stopping.stop(number)
                end = self._all[number].operation.completion
            return not (end is not None and end.status == Status.DONE and self._all[number].operation.released)
        except Error:
            return False

    def forget(self, number: int) -> None:
        """Nobody asks how it ends. One that cannot be withdrawn, as the daemon stands still, is withdrawn once it goes on."""
        try:
            if self._all[number].operation.completion is None:
                self._stopping.stop(number)
                if number not in self._stopping:
                    self._all[number] = self._all[number]._replace(wanted=False)
                    return
        except Error:
            pass
        self._drop(number)

    def _drop(self, number: int) -> None:
        self._all.pop(number).peer.refused.discard(number)
        self._stopping.over(number)
