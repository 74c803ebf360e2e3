"""What users write and what proxies carry: settings, and ``kv_transfer_params`` in both directions.

The parameters are NIXL's, so that proxies written for it work unchanged, plus one dict ``kvpipe`` that says where the KV
really is. Everything that comes from a client is checked here, and nothing here raises for it.
"""

from __future__ import annotations

import base64
import dataclasses
import difflib
import math
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

#: of the ``kvpipe`` dict; a newer one is not understood, and its prompt is computed here
VERSION = 1
_MAX_KEY, _MAX_PEER, _MAX_TRACE = 256, 255, 64
#: seconds that finished KV may be kept for a next turn
_MAX_KEEP = 3600.0
#: seconds: limits of other times; more would be refused at each hand-over, and so would less than a nanosecond
_LEAST, _MOST = 0.001, 30 * 86_400


@dataclasses.dataclass(frozen=True)
class Settings:
    """``kv_connector_extra_config``."""

    #: the daemon's socket; "": KVPIPE_SOCKET, /run/kvpipe/kvpiped.sock, then where `kvpiped --dev` has it
    socket: str = ""
    #: seconds that the engine waits for the daemon at its start
    connect_timeout: float = 30.0
    #: seconds that a finished prefill is kept for its decode engine, which renews it while the request waits there;
    #: at most the daemon's `offers.max_lease`
    lease: float = 30.0
    #: seconds that a decode engine tries to load a prompt's KV, before it computes it
    timeout: float = 30.0
    #: prompts with fewer tokens to load than this are computed
    kv_recompute_threshold: int = 64
    #: load and save layer by layer, so that the transfer overlaps the prefill; not with asynchronous scheduling where KV is loaded
    layerwise: bool = False
    #: seconds that a decode engine keeps what it has finished, for the prefill of the next turn; 0: only when asked to; at most 3600
    #: and the daemon's `offers.max_lease`
    decode_offer: float = 0.0
    #: of the decode engine's blocks, how many may be kept so
    decode_offer_share: float = 0.2
    #: "host:port" that goes out as remote_host and remote_port; "": what the daemon says that other nodes dial
    advertise: str = ""
    #: the model's name on both sides, where they call it differently; "": the last part of --model
    model: str = ""
    #: a line in the log for each peer at its first hand-over
    log_peers: bool = True

    @classmethod
    def parse(cls, extra: Mapping[str, Any]) -> "Settings":
        """Raises ValueError, in one line, for what is not known or not of its type."""
        fields = {f.name: f for f in dataclasses.fields(cls)}
        values: Dict[str, Any] = {}
        for key, value in extra.items():
            if key not in fields:
                near = difflib.get_close_matches(key, fields, 1)
                raise ValueError(f"kvpipe: unknown key {key!r} in kv_connector_extra_config: "
                                 + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"))
            values[key] = _typed(key, value, fields[key].default)
        settings = cls(**values)
        for key in ("connect_timeout", "lease", "timeout"):
            if not _LEAST <= getattr(settings, key) <= _MOST:  # not a number is neither
                raise ValueError(f"kvpipe: {key} is {getattr(settings, key)}: give {_LEAST} to {_MOST} seconds (30 days)")
        if not 0 <= settings.decode_offer_share <= 1:
            raise ValueError(f"kvpipe: decode_offer_share is {settings.decode_offer_share}: give 0 to 1, 0.2 is a fifth")
        if settings.kv_recompute_threshold < 0:
            raise ValueError(f"kvpipe: kv_recompute_threshold is {settings.kv_recompute_threshold}: must not be negative")
        if settings.decode_offer != 0 and not _LEAST <= settings.decode_offer <= _MAX_KEEP:
            raise ValueError(f"kvpipe: decode_offer is {settings.decode_offer}: give 0, or {_LEAST} to {_MAX_KEEP:.0f} seconds")
        if settings.advertise and _address(settings.advertise) is None:
            raise ValueError(f"kvpipe: advertise is {settings.advertise!r}: give host:port")
        return settings


def _typed(key: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # JSON has integers of any size
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"kvpipe: {key} is {value!r}: must be of type {kind.__name__}, like {default!r}")
    return value


def _address(text: str) -> Optional[Tuple[str, int]]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


class Source(NamedTuple):
    """Where a request's KV is."""

    node: str
    key: str
    token: bytes
    trace: Optional[str]
    tokens: int  # that are there, from the prompt's first on; 0: as many as the prompt has
    early: bool = False  # asked for by a transfer_id, perhaps before it is computed


def outgoing(*, blocks: Sequence[Sequence[int]], engine: str, request: str, address: str, tp: int, source: Source,
             prefill: bool = True, keep: float = 0) -> Dict[str, Any]:
    """The parameters that an answer carries. prefill: made by a prefill engine for its decode engine; else the other way.
    keep: what the request asks of the decode engine, which gets no other parameters than these."""
    host, port = _address(address) or (source.node, 0)
    return {
        "do_remote_prefill": prefill,
        "do_remote_decode": not prefill,
        "remote_block_ids": tuple(list(ids) for ids in blocks),
        "remote_engine_id": engine,
        "remote_request_id": request,
        "remote_host": host,
        "remote_port": port,
        "tp_size": tp,
        "kvpipe": {
            "v": VERSION,
            "node": source.node,
            "key": source.key,
            "token": base64.urlsafe_b64encode(source.token).rstrip(b"=").decode(),
            "trace": source.trace,
            "tokens": source.tokens,
            **({"keep": keep} if keep else {}),
        },
    }


def keep(params: Optional[Mapping[str, Any]], otherwise: float = 0) -> float:
    """Seconds for which a request asks that its KV be kept for the next turn; 0 for what makes no sense."""
    ours = (params or {}).get("kvpipe")
    asked = ours.get("keep", otherwise) if isinstance(ours, Mapping) else otherwise
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not _LEAST <= asked <= _MAX_KEEP:
        return 0
    return float(asked)


def names_source(params: Mapping[str, Any]) -> bool:
    """Whether the ``kvpipe`` dict says where KV is; one with "keep" alone does not."""
    ours = params.get("kvpipe")
    return isinstance(ours, Mapping) and ("node" in ours or "key" in ours)


def incoming(params: Mapping[str, Any]) -> Union[Source, str]:
    """Where the KV is, or why that cannot be told, in words."""
    ours = params.get("kvpipe")
    if ours is None:
        return ("kv_transfer_params has no \"kvpipe\" dict: the prefill engine does not use KVPipeConnector, or the proxy "
                "drops what it does not know")
    if not isinstance(ours, Mapping):
        return f"kv_transfer_params.kvpipe is a {type(ours).__name__}: must be a dict"
    if ours.get("v") != VERSION:
        return f"kv_transfer_params.kvpipe.v is {repr(ours.get('v'))[:40]}: this engine understands {VERSION}; use the same release on both"
    transfer = params.get("transfer_id")
    early = isinstance(transfer, str) and "key" not in ours
    node, key, trace, tokens = ours.get("node"), ours.get("key"), ours.get("trace"), ours.get("tokens") or 0
    if early:
        key = f"transfer:{transfer}"
    for name, value, limit in (("node", node, _MAX_PEER), ("key", key, _MAX_KEY)):
        if not _fits(value, limit):
            return f"kv_transfer_params.kvpipe.{name} is {str(value)[:40]!r}: must be a string of 1 to {limit} bytes"
    if ":" in str(node):
        return f"kv_transfer_params.kvpipe.node is {str(node)[:40]!r}: must be a node's name, addresses are the daemon's to know"
    token = decode_token(ours.get("token"))
    if token is None:
        return "kv_transfer_params.kvpipe.token: must be 16 to 32 bytes in base64url"
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens < 1 << 31:
        return f"kv_transfer_params.kvpipe.tokens is {str(tokens)[:40]!r}: must be a number of tokens"
    if not _fits(trace, _MAX_TRACE):
        trace = None
    return Source(str(node), str(key), token, trace, tokens, early)


def _fits(value: Any, limit: int) -> bool:
    """A string of 1 to limit bytes that C takes."""
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= limit and "\0" not in value
    except UnicodeEncodeError:  # JSON has half surrogates
        return False


def decode_token(text: Any) -> Optional[bytes]:
    """The bytes of a token in base64url, with padding or without; None for anything else."""
    if not isinstance(text, str) or not text.isascii() or len(text) > 48:
        return None
    try:
        token = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return token if 16 <= len(token) <= 32 else None
