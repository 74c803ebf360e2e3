"""Completions that the library has given out and that are not read yet.

Their texts and runs lie in the library's memory, which the thread's next call frees. That call may come before they are read: from a
signal handler, or from a __del__ that the garbage collector runs. So a call that enters a session has them copied first.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from . import _abi


class _Unread(threading.local):
    #: an array of _abi.Completion, zeros where nothing is, from before the call that fills it until it was read
    raws: Any = None


unread = _Unread()


def keep(raws: Any) -> None:
    """Gives completions memory of their own. What it copies is the library's, or a copy already."""
    for raw in raws:
        raw.message = raw.message
        if raw.nfailed:
            runs = ctypes.string_at(raw.failed, raw.nfailed * ctypes.sizeof(_abi.Run))
            raw.failed = (_abi.Run * raw.nfailed).from_buffer_copy(runs)
