"""Pipe and LookupBuffer for programs of torch, with the calls that vLLM's first P/D API had.

    pipe = kvpipe.torch.Pipe(node, "hidden", rank=0)                  # rank=1 on the other side, peer= its node
    pipe.send_tensor(tensor_or_none); pipe.recv_tensor()

    buffer = kvpipe.torch.LookupBuffer(node, "kv", capacity=10**9)    # the decoding side: without capacity
    buffer.insert(tokens, roi, key, value, hidden); buffer.drop_select(tokens, roi)

They are thin layers over Node.pipe() and Node.lookup_buffer(), which describe everything else. As in that
API, calls take no timeout: each side has one for all its calls.
"""

from __future__ import annotations

import contextlib
import operator
from typing import TYPE_CHECKING, Any, List, Optional

from . import _values
from .errors import Invalid

if TYPE_CHECKING:
    from .node import Node


def _host(tensor: Any) -> Any:
    """A tensor's bytes have to be in host memory to be sent; None stays None."""
    kind = getattr(getattr(tensor, "device", None), "type", "cpu")  # what is no tensor is refused by name where it is sent
    return tensor if kind == "cpu" else tensor.cpu()


def _placed(tensor: Any, device: Any) -> Any:
    """A received tensor where it was asked for; None stays None."""
    return tensor if tensor is None or device is None else tensor.to(device)


def _side(rank: Any) -> int:
    try:
        side = operator.index(rank)
    except TypeError:
        side = -1
    if side not in (0, 1):
        raise Invalid(f"pipe: rank is {_values.show(rank)}: a pipe has two sides, 0 and 1")
    return side


class Pipe:
    """Both directions between two ranks, tensors in order; a context manager that closes it.

    - ``name``: the same on both sides, and a different one for each pair.
    - ``rank``: 0 on one side, 1 on the other.
    - ``peer``: the other side's node, by name or "host:port"; None: this one.
    - ``capacity``: bytes that may be sent and not yet received (None: 64 MiB).
    - ``token``: as for Node.pipe().
    - ``timeout``: seconds that one call waits.
    - ``device``: where received tensors go; None: they stay in host memory.

    The sides may be opened in any order. One thread may send while another receives.
    """

    def __init__(self, node: "Node", name: str, rank: int, *, peer: Optional[str] = None, capacity: Optional[int] = None,
                 token: Optional[bytes] = None, timeout: float = 30.0, device: Any = None) -> None:
        side = _side(rank)
        self._timeout, self._device = timeout, device
        with contextlib.ExitStack() as opened:
            self._out = opened.enter_context(node.pipe(f"{name}/{side}", "send", capacity=capacity, token=token))
            self._in = opened.enter_context(node.pipe(f"{name}/{1 - side}", "recv", peer=peer, token=token))
            self._ends = opened.pop_all()

    def send_tensor(self, tensor: Optional[Any]) -> None:
        """Sends a copy of a tensor, or None. Waits only for room; raises Timeout if none comes."""
        self._out.send_tensor(_host(tensor), timeout=self._timeout)

    def recv_tensor(self) -> Optional[Any]:
        """The next tensor of the other side, or None if it sent None. Raises Timeout, Closed (the other side
        closed) or PeerGone.
        """
        return _placed(self._in.recv_tensor(timeout=self._timeout, framework="torch"), self._device)

    def close(self) -> None:
        """Closes both directions; what was sent can still be received for a while. A second call does nothing."""
        self._ends.close()

    def __enter__(self) -> "Pipe":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LookupBuffer:
    """Entries of five tensors that are found by their tokens, and tensors under keys; a context manager that
    closes it.

    - ``name``: the same on both sides.
    - ``capacity``: bytes, on the side that inserts; None on the side that selects.
    - ``peer``: on the selecting side, the inserting side's node, by name or "host:port"; None: this one.
    - ``token``: as for Node.lookup_buffer().
    - ``timeout``: seconds that one call waits.
    - ``device``: where selected tensors go; None: they stay in host memory.

    Any number of threads may select, and none waits for another.
    """

    def __init__(self, node: "Node", name: str, *, capacity: Optional[int] = None, peer: Optional[str] = None,
                 token: Optional[bytes] = None, timeout: float = 30.0, device: Any = None) -> None:
        self._timeout, self._device = timeout, device
        self._end = node.lookup_buffer(name, capacity=capacity, token=token, peer=peer)

    def insert(self, input_tokens: Optional[Any], roi: Optional[Any], key: Optional[Any], value: Optional[Any],
               hidden: Optional[Any]) -> None:
        """Inserts copies. Waits only for room, never for a query. What can never fit raises Invalid at once."""
        tokens, mask = _host(input_tokens), _host(roi)
        self._end.insert(tokens, mask, _host(key), _host(value), _host(hidden), timeout=self._timeout)

    def drop_select(self, input_tokens: Optional[Any], roi: Optional[Any]) -> List[Optional[Any]]:
        """Waits for an entry and removes it: [tokens, roi, key, value, hidden].

        An entry matches if its tokens begin with ``input_tokens[roi]``, or the other way round: look at the
        tokens that come back. None matches anything; the oldest entry comes first. Raises Timeout if nothing
        matched in time.
        """
        entry = self._end.drop_select(_host(input_tokens), _host(roi), timeout=self._timeout, framework="torch")
        return [_placed(member, self._device) for member in entry]

    def put(self, key: str, value: Optional[Any]) -> None:
        """Keeps a copy under a key, in place of what was there."""
        self._end.put(key, _host(value), timeout=self._timeout)

    def get(self, key: str) -> Optional[Any]:
        """Waits for a key, and returns its tensor. The buffer keeps it."""
        return _placed(self._end.get(key, timeout=self._timeout, framework="torch"), self._device)

    def close(self) -> None:
        """Closes this side. A second call does nothing."""
        self._end.close()

    def __enter__(self) -> "LookupBuffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
