"""The structs and constants of ``kvpipe.h``, field by field. The tests compare them with the C compiler's."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Type, TypeVar

FOREVER = 2**63 - 1
NOWAIT = -(2**63)
NO_BLOCK = 0xFFFFFFFF
MAX_TOKEN = 32
MAX_PART = 15  # View.part without its NUL

ROLES = {"worker": 1, "scheduler": 2}
VIEW_KINDS = {"paged": 1, "opaque": 2}

OP_SEALED = 1
OP_LAYERED = 2

ADOPT_QUIESCED = 1

C_MORE = 1

MAX_DIMS = 16
TENSOR_STRIDED = 1
MEMBERS = 5  # of an entry of a lookup buffer

ENDS = {"send": 1, "recv": 2}
MATCHES = {"prefix": 1, "exact": 2}

_S = TypeVar("_S", bound=ctypes.Structure)


def opts(kind: Type[_S], **fields: Any) -> _S:
    """A struct that begins with its own size, as KVPIPE_OPTS makes it."""
    return kind(sz=ctypes.sizeof(kind), **fields)


class ConnectOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("socket", c_char_p),
        ("engine_id", c_char_p),
        ("instance", c_char_p),
        ("role", c_uint32),
        ("tp_rank", c_uint32),
        ("pp_rank", c_uint32),
        ("tp_world", c_uint32),
        ("pp_world", c_uint32),
        ("sq_entries", c_uint32),
        ("cq_entries", c_uint32),
        ("flags", c_uint32),
        ("timeout_ns", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class AdoptOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("addr", c_void_p),
        ("nbytes", c_uint64),
        ("flags", c_uint32),
        ("reserved0", c_uint32),
        ("reserved", c_uint64 * 4),
    ]


class View(ctypes.Structure):
    _fields_ = [
        ("region", c_uint64),
        ("base", c_uint64),
        ("num_blocks", c_uint64),
        ("block_stride", c_uint64),
        ("token_stride", c_uint64),
        ("head_stride", c_uint64),
        ("content_bytes", c_uint64),
        ("layer", c_uint32),
        ("group", c_uint32),
        ("kind", c_uint32),
        ("block_size", c_uint32),
        ("first_head", c_uint32),
        ("heads", c_uint32),
        ("total_heads", c_uint32),
        ("part", c_char * 16),
        ("reserved", c_uint32 * 7),
    ]


class Field(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class Blocks(ctypes.Structure):
    _fields_ = [
        ("group", c_uint32),
        ("first_token", c_uint32),
        ("ntokens", c_uint32),
        ("count", c_uint32),
        ("ids", c_void_p),  # const uint32_t *
    ]


class OfferOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("key", c_char_p),
        ("key_len", c_uint32),
        ("token_len", c_uint32),
        ("token", c_char_p),
        ("blocks", POINTER(Blocks)),
        ("nblocks", c_uint32),
        ("flags", c_uint32),
        ("consumers", c_uint32),
        ("content_len", c_uint32),
        ("content", c_char_p),
        ("trace", c_char_p),
        ("after", c_uint64),
        ("tag", c_uint64),
        ("lease_ns", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class ExtendOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("blocks", POINTER(Blocks)),
        ("nblocks", c_uint32),
        ("flags", c_uint32),
        ("after", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class TakeOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("key", c_char_p),
        ("key_len", c_uint32),
        ("token_len", c_uint32),
        ("token", c_char_p),
        ("peer", c_char_p),
        ("blocks", POINTER(Blocks)),
        ("nblocks", c_uint32),
        ("flags", c_uint32),
        ("part", c_uint32),
        ("parts", c_uint32),
        ("take_id", c_uint64),
        ("content_len", c_uint32),
        ("reserved0", c_uint32),
        ("content", c_char_p),
        ("trace", c_char_p),
        ("after", c_uint64),
        ("tag", c_uint64),
        ("timeout_ns", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class KeyOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("key", c_char_p),
        ("key_len", c_uint32),
        ("token_len", c_uint32),
        ("token", c_char_p),
        ("peer", c_char_p),
        ("trace", c_char_p),
        ("tag", c_uint64),
        ("timeout_ns", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("dtype", c_uint32),
        ("ndim", c_uint32),
        ("shape", c_uint64 * MAX_DIMS),
        ("strides", c_int64 * MAX_DIMS),
        ("data", c_void_p),
        ("flags", c_uint32),
        ("reserved0", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class PipeOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("name", c_char_p),
        ("end", c_uint32),
        ("flags", c_uint32),
        ("capacity", c_uint64),
        ("token", c_char_p),
        ("token_len", c_uint32),
        ("window", c_uint32),
        ("peer", c_char_p),
        ("linger_ns", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class LookupOpts(ctypes.Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("name", c_char_p),
        ("capacity", c_uint64),
        ("token", c_char_p),
        ("token_len", c_uint32),
        ("flags", c_uint32),
        ("peer", c_char_p),
        ("linger_ns", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class Run(ctypes.Structure):
    _fields_ = [("group", c_uint32), ("first", c_uint32), ("count", c_uint32)]


class Completion(ctypes.Structure):
    _fields_ = [
        ("op", c_uint64),
        ("op_id", c_uint64),
        ("tag", c_uint64),
        ("bytes", c_uint64),
        ("status", c_uint32),
        ("reason", c_uint32),
        ("flags", c_uint32),
        ("rank", c_uint32),
        ("epoch", c_uint32),
        ("nfailed", c_uint32),
        ("failed", POINTER(Run)),
        ("message", c_char_p),
        ("reserved", c_uint64 * 4),
    ]


# C name -> struct here, for the tests.
STRUCTS = {
    "kvpipe_connect_opts": ConnectOpts,
    "kvpipe_adopt_opts": AdoptOpts,
    "kvpipe_view": View,
    "kvpipe_field": Field,
    "kvpipe_blocks": Blocks,
    "kvpipe_offer_opts": OfferOpts,
    "kvpipe_extend_opts": ExtendOpts,
    "kvpipe_take_opts": TakeOpts,
    "kvpipe_key_opts": KeyOpts,
    "kvpipe_tensor": Tensor,
    "kvpipe_pipe_opts": PipeOpts,
    "kvpipe_lookup_opts": LookupOpts,
    "kvpipe_run": Run,
    "kvpipe_completion": Completion,
}
