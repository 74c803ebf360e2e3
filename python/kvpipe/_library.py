"""Finding libkvpipe, declaring its functions, turning its return codes into errors.

The library is loaded on first use, so that importing the package never fails: from ``KVPIPE_LIBRARY``, else beside the
package, else by the dynamic loader. Calls go through ``ctypes.CDLL``, which releases the GIL.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Tuple

from . import _abi, _said, errors

SONAME = "libkvpipe.so.0"

_OP = c_uint64
_TENSOR = POINTER(_abi.Tensor)
# name -> (result, arguments)
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "kvpipe_connect": (c_int, [POINTER(_abi.ConnectOpts), POINTER(c_void_p)]),
    "kvpipe_close": (None, [c_void_p]),
    "kvpipe_connected": (c_int, [c_void_p]),
    "kvpipe_node": (c_char_p, [c_void_p]),
    "kvpipe_instance": (c_char_p, [c_void_p]),
    "kvpipe_advertise": (c_char_p, [c_void_p]),
    "kvpipe_fd": (c_int, [c_void_p]),
    "kvpipe_mem_register_fd": (c_int, [c_void_p, c_int, c_uint64, c_uint32, POINTER(c_uint64)]),
    "kvpipe_mem_adopt": (c_int, [c_void_p, POINTER(_abi.AdoptOpts), POINTER(c_uint64)]),
    "kvpipe_mem_unregister": (c_int, [c_void_p, c_uint64, c_int64]),
    "kvpipe_mem_invalidate": (c_int, [c_void_p, c_uint64, c_int64]),
    "kvpipe_mem_revalidate": (c_int, [c_void_p, c_uint64, c_int64]),
    "kvpipe_set_layout": (c_int, [c_void_p, POINTER(_abi.View), c_uint32, POINTER(_abi.Field), c_uint32]),
    "kvpipe_progress": (c_int, [c_void_p, c_uint64]),
    "kvpipe_offer": (c_int, [c_void_p, POINTER(_abi.OfferOpts), POINTER(_OP)]),
    "kvpipe_offer_token": (c_int, [c_void_p, _OP, c_void_p, POINTER(c_uint32)]),
    "kvpipe_offer_extend": (c_int, [c_void_p, _OP, POINTER(_abi.ExtendOpts), c_int64]),
    "kvpipe_offer_seal": (c_int, [c_void_p, _OP, c_int64]),
    "kvpipe_offer_withdraw": (c_int, [c_void_p, _OP, c_int64, POINTER(c_int)]),
    "kvpipe_take": (c_int, [c_void_p, POINTER(_abi.TakeOpts), POINTER(_OP)]),
    "kvpipe_cancel": (c_int, [c_void_p, _OP, c_int64, POINTER(c_int)]),
    "kvpipe_watch": (c_int, [c_void_p, POINTER(_abi.KeyOpts), POINTER(_OP)]),
    "kvpipe_drop": (c_int, [c_void_p, POINTER(_abi.KeyOpts), POINTER(_OP)]),
    "kvpipe_poll": (c_int, [c_void_p, POINTER(_abi.Completion), c_uint32]),
    "kvpipe_wait": (c_int, [c_void_p, _OP, c_int64, POINTER(_abi.Completion)]),
    "kvpipe_wait_released": (c_int, [c_void_p, _OP, c_int64]),
    "kvpipe_wait_layer": (c_int, [c_void_p, _OP, c_uint32, c_int64]),
    "kvpipe_op_released": (c_int, [c_void_p, _OP]),
    "kvpipe_op_free": (None, [c_void_p, _OP]),
    "kvpipe_dtype_name": (c_char_p, [c_uint32]),
    "kvpipe_dtype_parse": (c_uint32, [c_char_p]),
    "kvpipe_dtype_size": (c_uint32, [c_uint32]),
    "kvpipe_pipe_open": (c_int, [c_void_p, POINTER(_abi.PipeOpts), POINTER(c_void_p)]),
    "kvpipe_pipe_send": (c_int, [c_void_p, POINTER(_abi.Tensor), c_int64]),
    "kvpipe_pipe_recv": (c_int, [c_void_p, c_int64, POINTER(c_void_p)]),
    "kvpipe_pipe_fd": (c_int, [c_void_p]),
    "kvpipe_pipe_flush": (c_int, [c_void_p, c_int64]),
    "kvpipe_pipe_close": (None, [c_void_p]),
    "kvpipe_lookup_open": (c_int, [c_void_p, POINTER(_abi.LookupOpts), POINTER(c_void_p)]),
    "kvpipe_lookup_insert": (c_int, [c_void_p, POINTER(_TENSOR), c_int64]),
    "kvpipe_lookup_select": (c_int, [c_void_p, _TENSOR, _TENSOR, c_uint32, c_int64, POINTER(c_void_p)]),
    "kvpipe_lookup_put": (c_int, [c_void_p, c_char_p, c_uint32, _TENSOR, c_int64]),
    "kvpipe_lookup_get": (c_int, [c_void_p, c_char_p, c_uint32, c_int64, POINTER(c_void_p)]),
    "kvpipe_lookup_fd": (c_int, [c_void_p]),
    "kvpipe_lookup_close": (None, [c_void_p]),
    "kvpipe_query_wait": (c_int, [c_void_p, c_int64, POINTER(c_void_p)]),
    "kvpipe_query_done": (c_int, [c_void_p]),
    "kvpipe_query_free": (None, [c_void_p]),
    "kvpipe_msg_count": (c_uint32, [c_void_p]),
    "kvpipe_msg_tensor": (c_int, [c_void_p, c_uint32, _TENSOR]),
    "kvpipe_msg_matched": (c_uint64, [c_void_p]),
    "kvpipe_msg_free": (None, [c_void_p]),
    "kvpipe_version": (c_char_p, []),
    "kvpipe_last_error": (c_char_p, []),
}


class Library:
    """libkvpipe: each function of the table above is an attribute, without its ``kvpipe_``."""

    def __init__(self, dll: ctypes.CDLL, path: str) -> None:
        self.path = path
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(dll, name)
            except AttributeError:
                raise errors.Incompatible(
                    f"{path} has no {name}(): it is older than this package; "
                    "install both from the same release, or set KVPIPE_LIBRARY to another"
                ) from None
            function.restype = result
            function.argtypes = arguments
            setattr(self, name[len("kvpipe_"):], function)

    def __getattr__(self, name: str) -> Any:  # only for what __init__ did not set
        raise AttributeError(f"libkvpipe has no function kvpipe_{name}() that this package knows")

    def error(self, code: int) -> errors.Error:
        """The error for a negative return code of the calling thread's last call."""
        return errors.make(-code, _said.last(self).decode("utf-8", "replace"))

    def check(self, code: int) -> int:
        if code < 0:
            raise self.error(code)
        return code


def _beside() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)


def _open() -> Library:
    chosen = os.environ.get("KVPIPE_LIBRARY")
    if chosen:
        candidates = [chosen]
    else:
        candidates = [path for path in (_beside(),) if os.path.exists(path)] + [SONAME]
    failed = []
    for path in candidates:
        try:
            return Library(ctypes.CDLL(path), path)
        except OSError as error:
            failed.append(str(error))
    advice = (
        "KVPIPE_LIBRARY names it: correct or unset it"
        if chosen
        else f"install libkvpipe, or set KVPIPE_LIBRARY to the path of {SONAME} (a build leaves it in build/lib)"
    )
    raise errors.Unavailable(f"libkvpipe cannot be loaded: {'; '.join(failed)}; {advice}")


_lock = threading.Lock()
_loaded: Optional[Library] = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def library() -> Library:
    """The library, loaded when first asked for. Raises Unavailable or Incompatible."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _open()
    return _loaded


def version() -> str:
    """The version of the library in use, "0.1.0"."""
    text: bytes = library().version()
    return text.decode()
