"""Hand KV-cache blocks from one inference engine to another, through the node's daemon, kvpiped.

    with kvpipe.connect(engine_id="prefill-0") as node:
        region = node.alloc(nbytes)
        node.set_layout([kvpipe.View(region, 0, num_blocks=..., ...)], fingerprint={"model": ...})
        offer = node.offer("request-1", block_ids, tokens=n)      # on the other node: node.take(...).wait()

Any thread may call anything. Until they are ``released``, an offer's blocks must not be written, and a take's
must not be touched. After a completion with ``released`` False, one RELEASED completion follows.
"""

from ._connect import connect
from ._library import version
from .adopted import AdoptedRegion
from .blocks import NO_BLOCK
from .completion import Completion, Run, Status
from .errors import (
    Busy,
    Cancelled,
    Closed,
    Corrupt,
    Denied,
    Error,
    Expired,
    Incompatible,
    Invalid,
    NotFound,
    PeerGone,
    Quota,
    Reason,
    Restarted,
    Timeout,
    Unavailable,
)
from .layout import View
from .lookup import Entry, LookupBuffer
from .node import Node
from .offer import Offer
from .operation import Operation
from .pipe import Pipe
from .region import Region
from .take import Take
from .tensors import RawTensor

__version__ = "0.1.0"

__all__ = [
    "NO_BLOCK", "AdoptedRegion", "Completion", "Entry", "LookupBuffer", "Node", "Offer", "Operation", "Pipe", "RawTensor",
    "Reason", "Region", "Run", "Status", "Take", "View",
    "connect", "version",
    "Error", "Invalid", "NotFound", "Expired", "Denied", "Incompatible", "Busy", "Quota", "Timeout", "Cancelled",
    "PeerGone", "Restarted", "Unavailable", "Corrupt", "Closed",
]
