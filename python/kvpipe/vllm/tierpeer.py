"""What a side of vLLM's tier of offloaded KV has open to a peer: a pipe each way, in which the sides say what they write, and
the takes of what the peer writes here."""

from __future__ import annotations

import array
import json
import time
from typing import Any, Callable, Container, Dict, List, Optional, Set

from .. import Busy, Closed, Error, Node, Pipe, RawTensor, Status, Take, Timeout
from ..pipe import all_sent, given_up
from .compat import logger
from .guard import SAID
from .submissions import Submissions

#: seconds for which a pipe outlives its sender: for its receiver to hear of that, and no longer, as it cannot be opened again meanwhile
_LINGER = 0.5
#: seconds from the start for which a pipe from a peer may be the one before this, which the peer has yet to close
_YOUNG = 2.0
#: seconds after which a take is asked once more to end: the daemon's queue may have been full
_AGAIN = 0.5


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


def _words(tensor: Optional[RawTensor], known: Container[int]) -> List[int]:
    """What tell() sent, a number and blocks. known: numbers of what is being taken. Raises ValueError for anything else."""
    words = array.array("q", b"" if tensor is None else bytes(tensor.data)).tolist()
    if not words or words[0] == 0 or words[0] in known:
        raise ValueError("it says what makes no sense")
    return words


class Peer:
    """Called by one thread, but for open() and shut(), which wait for the daemon and are another's: one after the other. ``later`` has
    that thread do something.

    ``refused``: numbers of our writes that it will not take. ``fault``: why nothing can be written to it or by it any more, as a pipe
    has failed; "": it can. ``left``: that is because it has removed us, and nothing of ours lands there any more."""

    def __init__(self, node: Node, submissions: Submissions, mine: str, about: Dict[str, Any], token: bytes, num_blocks: int,
                 timeout: float, later: Callable[[Callable[[], None]], Any]) -> None:
        self._node, self._submissions, self._mine, self._timeout = node, submissions, mine, timeout
        self._later = later
        self._id, self.token, self.num_blocks = str(about["id"]), token, num_blocks
        self._where = None if about["node"] == node.name else str(about["address"] or about["node"])
        self._tell: Optional[Pipe] = None
        self._hears: Optional[Pipe] = None
        self._young = 0.0  # until when it is
        self._takes: Dict[int, Take] = {}
        self._refusals: List[int] = []
        self.refused: Set[int] = set()
        self.fault, self.left = "", False

    @property
    def usable(self) -> bool:
        """Whether blocks can be written to it."""
        return self._tell is not None and not self.fault

    def open(self, name: str) -> None:
        """Opens the pipes. Raises ValueError, as vLLM expects."""
        try:
            tell = self._sender()
            try:
                self._hears = self._receiver()
            except Error:
                tell.close()
                raise
            self._young, self._tell = time.monotonic() + _YOUNG, tell
        except Error as error:
            self.fault = str(error)
            raise ValueError(f"kvpipe: {name}: {error}") from None

    def _sender(self) -> Pipe:
        """What lies unread in the one before may have to go first."""
        until = time.monotonic() + 2 * _LINGER
        while True:
            try:
                return self._node.pipe(f"tier/{self._mine}/{self._id}", "send", token=self.token, linger=_LINGER)
            except Busy:
                if time.monotonic() >= until:
                    raise
            time.sleep(_LINGER / 10)

    def _receiver(self) -> Pipe:
        return self._node.pipe(f"tier/{self._id}/{self._mine}", "recv", token=self.token, peer=self._where)

    def _hear_anew(self) -> None:
        try:
            self._hears = self._receiver()
        except Error as error:
            self.fault = str(error)

    def shut(self) -> None:
        """Closes them."""
        for pipe in (self._tell, self._hears):
            if pipe is not None:
                pipe.close()

    def end(self) -> None:
        """Ends the takes, without waiting for that."""
        for take in self._takes.values():
            self._submissions.ask(take.cancel)

    def wait(self, name: str) -> None:
        """Waits, however long it takes, until no byte of them lands any more."""
        said = time.monotonic() + SAID
        for take in self._takes.values():
            while not self._lands_no_more(take):
                self._submissions.ask(take.cancel)
                if time.monotonic() >= said:
                    said += SAID
                    logger.error("kvpipe: peer %s: the daemon does not let go of blocks that it writes: the engine waits until it does, "
                                 "or is ended, for what still comes would overwrite what the blocks are used for next", name)
        self._takes.clear()

    def _lands_no_more(self, take: Take) -> bool:
        try:
            take.wait_released(_AGAIN)
        except Timeout:
            return False
        except Error:  # the session is over
            pass
        return True

    def tell(self, number: int, blocks: List[int]) -> bool:
        """Says what is offered to it. False: it does not hear of that."""
        try:
            assert self._tell is not None
            self._submissions.make(self._tell.send_tensor, array.array("q", [number, *blocks]), timeout=0)
            return True
        except (Timeout, Busy):  # no room
            pass
        except Error as error:
            self.fault = str(error)
        return False

    def hear(self) -> None:
        """Takes what it has offered since."""
        while self._hears is not None and not self.fault:
            try:
                number, *blocks = _words(self._hears.recv_tensor(timeout=0, framework="raw"), self._takes)
            except Timeout:
                return
            except (Error, ValueError) as error:
                self._lost(error)
                return
            if number < 0:
                self.refused.add(-number)
                continue
            try:
                self._takes[number] = self._submissions.make(
                    self._node.take, f"tier/{self._id}/{number}", blocks, peer=self._where, token=self.token, tokens=len(blocks),
                    timeout=self._timeout)
            except Error:
                self._refusals.append(number)

    def _lost(self, error: Exception) -> None:
        """Nothing comes by this pipe any more."""
        left = isinstance(error, Closed) and all_sent(error)
        closed = left or given_up(error)  # what it gives up is forgotten there
        if closed and self._hears is not None and time.monotonic() < self._young:
            self._later(self._hears.close)
            self._hears = None
            self._later(self._hear_anew)
        else:
            self.fault, self.left = str(error), left

    def serve(self) -> None:
        """Tells it of takes that failed, once no byte of them lands any more."""
        for number, take in list(self._takes.items()):
            try:
                end = take.completion if take.released else None
            except Error as error:  # the session is over
                self.fault = str(error)
                return
            if end is not None:
                del self._takes[number]
                if end.status != Status.DONE:
                    self._refusals.append(number)
        while self._refusals and self.usable and self.tell(-self._refusals[0], []):
            self._refusals.pop(0)
