"""Takes: another engine's blocks, into one's own."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional

from . import _values
from .blocks import Ids32
from .errors import Reason
from .operation import Operation

if TYPE_CHECKING:
    from .node import Node

# Said of a take that still runs (capi/wait_op.c). It is then not asked whether it has failed: if it has ended just now, poll() is to say so.
_NOT_YET = ": layer not in place yet after "


class Take(Operation):
    """An exclusive hold on its blocks until ``released``: do not touch them.

    wait() returns when all bytes are in place, checked and visible.
    """

    def __init__(self, node: "Node", number: int, key: bytes, ns: int, ids: Ids32, layered: bool) -> None:
        super().__init__(node, number, key, ns)
        self._ids = ids
        self._layered = layered

    @property
    def failed_blocks(self) -> Any:
        """Block ids whose content must not be used, after a take that failed.

        They have the shape in which the blocks were given: a list, or one list for each group. Empty while
        the take runs and when all went well. A cancelled take names none, and no block's content may be used.
        """
        end = self._look()
        return self._ids.within(end.failed if end is not None else ())

    def wait_layer(self, layer: int, timeout: Optional[float] = None) -> None:
        """Waits until a layer is in place. If the take failed, raises its Error, as wait() does.

        With ``layered=True`` layers come one by one; otherwise each layer is in place when all are.
        """
        number = _values.integer("layer", layer)
        if self._layered:
            self._sliced("wait_layer", timeout, lambda h, ns: self._await_layer(h, number, ns), lambda: None)
        else:
            self.wait(timeout)

    def _await_layer(self, handle: int, layer: int, ns: int) -> int:
        """Returns the library's code. The error of a take that failed is raised here: its code alone looks like an error of the call, or,
        for a take that ran into its own deadline, like a take that still runs."""
        lib = self._session.lib
        code = int(lib.wait_layer(handle, self._id, layer, ns))
        if code == 0:
            return 0
        error = lib.error(code)  # read before the next call sets another
        if code == -Reason.TIMEOUT and _NOT_YET in str(error):
            return code
        end = self.completion
        failure = None if end is None else end.error()
        if failure is not None and failure.reason == error.reason:
            raise failure
        if code != -Reason.TIMEOUT:
            raise error
        return code

    def cancel(self, timeout: Optional[float] = None) -> bool:
        """Cancels the take and waits for its end, at most ``timeout`` seconds (None: 5; 0: asks, does not
        wait).

        True: the memory is yours now, also if the take had ended before. False: RELEASED follows
        (wait_released()).
        """
        ns = _values.answer("timeout", timeout)
        reusable = ctypes.c_int()
        with self._session as handle:
            lib = self._session.lib
            lib.check(lib.cancel(handle, self._id, ns, ctypes.byref(reusable)))
        if timeout != 0:  # else poll() gives its end to whoever does not wait
            if reusable.value:
                self._free()
            self._look()
        return bool(reusable.value)
