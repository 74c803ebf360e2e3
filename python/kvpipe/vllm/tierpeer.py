"""What a side of vLLM's tier of offloaded KV has open to a peer: a pipe each way, in which the sides say what they write, and
the takes of what the peer writes here."""

from __future__ import annotations

import array
import json
from typing import Any, Dict, List, Optional, Set

from .. import Error, Node, Pipe, RawTensor, Status, Take, Timeout
from .guard import ask


def read(metadata: bytes) -> Dict[str, Any]:
    """What a peer says of itself. Raises ValueError for anything else."""
    try:
        about = json.loads(metadata)
        if about["v"] == 1 and len(bytes.fromhex(about["secret"])) == 16 and all(
                isinstance(about[k], str) for k in ("id", "node", "address", "fingerprint")):
            return dict(about)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError("kvpipe: the peer's metadata is not of a KVPipeTransport of this release")


def _words(tensor: Optional[RawTensor]) -> List[int]:
    """What tell() sent, a number and blocks. Raises ValueError for anything else."""
    if tensor is None or not tensor.data.nbytes:
        raise ValueError("nothing")
    return array.array("q", bytes(tensor.data)).tolist()


class Peer:
    """Called by one thread. ``refused``: numbers of our writes that it will not take. ``gone``: a pipe to or from it has failed."""

    def __init__(self, node: Node, mine: str, about: Dict[str, Any], token: bytes, num_blocks: int, timeout: float) -> None:
        self._node, self._timeout = node, timeout
        self._id, self.token, self.num_blocks = str(about["id"]), token, num_blocks
        self._where = None if about["node"] == node.name else str(about["address"] or about["node"])
        self._takes: Dict[int, Take] = {}
        self._refusals: List[int] = []
        self.refused: Set[int] = set()
        self.gone = False
        self._tell: Pipe = node.pipe(f"tier/{mine}/{self._id}", "send", token=token)
        try:
            self._hears: Pipe = node.pipe(f"tier/{self._id}/{mine}", "recv", token=token, peer=self._where)
        except Error:
            self._tell.close()
            raise

    def close(self) -> None:
        for take in self._takes.values():
            ask(take.cancel)
        self._tell.close()
        self._hears.close()

    def tell(self, number: int, blocks: List[int]) -> None:
        """Says what is offered to it. Raises Error."""
        self._tell.send_tensor(array.array("q", [number, *blocks]), timeout=0)

    def hear(self) -> None:
        """Takes what it has offered since."""
        while not self.gone:
            try:
                number, *blocks = _words(self._hears.recv_tensor(timeout=0, framework="raw"))
            except Timeout:
                return
            except (Error, ValueError):
                self.gone = True
                return
            if number < 0:
                self.refused.add(-number)
                continue
            try:
                self._takes[number] = self._node.take(f"tier/{self._id}/{number}", blocks, peer=self._where, token=self.token,
                                                      tokens=len(blocks), timeout=self._timeout)
            except Error:
                self._refusals.append(number)

    def serve(self) -> None:
        """Tells it of takes that failed, once no byte of them lands any more."""
        for number, take in list(self._takes.items()):
            end = take.completion
            if end is not None and take.released:
                del self._takes[number]
                if end.status != Status.DONE:
                    self._refusals.append(number)
        try:
            while self._refusals and not self.gone:
                self.tell(-self._refusals[0], [])
                self._refusals.pop(0)
        except Timeout:
            pass  # no room: at the next poll
        except Error:
            self.gone = True
