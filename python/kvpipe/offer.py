"""Offers: blocks that others may take."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Optional

from . import _abi, _values
from .blocks import BlockLists, Packed
from .errors import Error, Invalid, Timeout
from .operation import Operation

if TYPE_CHECKING:
    from .node import Node


class Offer(Operation):
    """A shared hold on its blocks until ``released``: do not write them.

    ``token`` is what a taker must present. wait() returns when the offer was consumed. It raises Expired when
    the lease ran out, and Cancelled when the offer was withdrawn.

    extend(), seal() and withdraw() wait for the daemon's answer, at most ``timeout`` seconds (None: 5). With
    0 they only ask, and nobody is told of a refusal. extend() and seal() raise Timeout if there was no answer,
    also without a daemon, and, once the offer has ended, Expired or the reason for which it failed. After a
    Timeout or an interrupt of extend() the offer may have the new blocks, or come to have them: withdraw()
    before you write these blocks.
    """

    def __init__(self, node: "Node", number: int, key: bytes, ns: int, end: int) -> None:
        super().__init__(node, number, key, ns)
        self._tokens = end
        self._unsure = False  # an extension was not answered
        room = ctypes.create_string_buffer(_abi.MAX_TOKEN)
        length = ctypes.c_uint32(_abi.MAX_TOKEN)
        with self._session as handle:
            lib = self._session.lib
            lib.check(lib.offer_token(handle, number, room, ctypes.byref(length)))
        self.token: bytes = room.raw[: length.value]

    @property
    def tokens(self) -> int:
        """How many tokens the offer covers so far; perhaps more after an extend() that raised Timeout or was
        interrupted.
        """
        return self._tokens

    def extend(self, blocks: BlockLists, tokens: int, after: int = 0, layered: bool = False, *,
               sealed: bool = False, timeout: Optional[float] = None) -> None:
        """Adds blocks; ``tokens`` is the new total.

        If the offer ended in the middle of a block, the list begins with that block.

        - ``after``: the blocks are ready once every rank's progress has reached it.
        - ``layered``: True makes them ready layer by layer: layer l once progress has reached ``after``'s
          step with phase l + 1.
        - ``sealed``: True says that nothing will be added after this.

        The blocks of an opaque group come once, with the piece after which they are final. Leave the group
        out (None) of the other pieces.

        After an extend() that raised Timeout or was interrupted, nobody knows where the offer ends, and
        nothing more can be added.
        """
        if self._unsure:
            raise Invalid("extend: one before raised Timeout or was interrupted, and may be part of the offer or not: withdraw() it, and offer anew")
        total = _values.integer("tokens", tokens)
        if total < self._tokens:
            raise Invalid(f"extend: tokens is {total}: it is the new total, and the offer has {self._tokens}")
        lists = Packed(blocks, self._tokens, total - self._tokens)
        opts = _abi.opts(
            _abi.ExtendOpts,
            blocks=lists.array,
            nblocks=lists.count,
            flags=(_abi.OP_LAYERED if _values.flag("layered", layered) else 0) | (_abi.OP_SEALED if _values.flag("sealed", sealed) else 0),
            after=_values.integer("after", after, 64),
        )
        ns = _values.answer("timeout", timeout)
        with self._session as handle:
            lib = self._session.lib
            try:
                lib.check(lib.offer_extend(handle, self._id, ctypes.byref(opts), ns))
            except BaseException as error:
                if isinstance(error, Timeout) or not isinstance(error, Error):  # the answer did not come, or a signal handler raised
                    self._unsure = True
                raise
        self._tokens = total

    def seal(self, timeout: Optional[float] = None) -> None:
        """Says that nothing more will be added."""
        ns = _values.answer("timeout", timeout)
        with self._session as handle:
            lib = self._session.lib
            lib.check(lib.offer_seal(handle, self._id, ns))

    def withdraw(self, timeout: Optional[float] = None) -> bool:
        """Takes the offer back. True: the blocks are free now. False: RELEASED follows (wait_released())."""
        ns = _values.answer("timeout", timeout)
        reusable = ctypes.c_int()
        with self._session as handle:
            lib = self._session.lib
            lib.check(lib.offer_withdraw(handle, self._id, ns, ctypes.byref(reusable)))
        if timeout != 0:  # else poll() gives its end to whoever does not wait
            if reusable.value:
                self._free()
            self._look()
        return bool(reusable.value)
