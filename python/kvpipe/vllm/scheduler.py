"""The scheduler's side: which requests load, which are offered. It touches no memory. One session submits for all ranks of
the engine on this node; what it hears of the ends is only a second word, each worker hears of its own.

Each step has a number; blocks are written and read only between the right ones: a take not before the step that its blocks
were allocated in begins, an offer not before the last step that computed its request is saved."""

from __future__ import annotations

import array
import hashlib
import secrets
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import NO_BLOCK, Error, Node, Operation, Status, Timeout
from . import params as wire
from .compat import RequestStatus, logger, transfer_groups
from .layout import whole
from .meta import Step, end_of, start_of
from .params import Settings, Source

_DELIVERED = (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)


class _Waiting(NamedTuple):
    """A request that may load, before it has blocks."""

    source: Source
    renew: float  # when its producer has to hear of it again


class _Running(NamedTuple):
    """An offer or a take."""

    request: str
    operation: Operation


class Scheduler:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, config: Any, cache: Any, settings: Settings) -> None:
        self._node, self._settings, self._engine = node, settings, str(config.kv_transfer_config.engine_id)
        self._tp = int(config.parallel_config.tensor_parallel_size)
        self._groups = transfer_groups(cache)
        self._block_sizes = [int(cache.kv_cache_groups[i].kv_cache_spec.block_size) for i in self._groups]
        # Where attention packs a block, blocks are handed over whole.
        self._unit = self._block_sizes[0] if config.device_config.device_type == "cpu" else 1
        self._waiting: Dict[str, _Waiting] = {}
        self._prefills: Dict[str, int] = {}  # request that will be offered -> the last step that computed it
        self._running: Dict[int, _Running] = {}  # tag ->
        self._tag = 0
        self._step = 0
        self._next = Step(1)
        self._silent = False

    # ---- requests come

    def add(self, request: Any) -> None:
        params = request.kv_transfer_params
        if not params:
            return
        if params.get("do_remote_decode"):
            self._prefills[request.request_id] = 0
        if params.get("do_remote_prefill"):
            source = wire.incoming(params)
            if isinstance(source, str):
                logger.warning("kvpipe: request %s computes its prompt here: %s", request.request_id, source)
                return
            self._waiting[request.request_id] = self._watch(source)

    def _watch(self, source: Source) -> _Waiting:
        self._tell(self._node.watch, source)
        return _Waiting(source, time.monotonic() + self._settings.lease / 3)

    def _tell(self, what: Callable[..., Any], source: Source) -> None:
        try:
            what(source.key, self._peer(source), source.token, timeout=self._settings.lease, trace=source.trace)
        except Error as error:
            logger.debug("kvpipe: %s: %s", source.key, error)

    def _peer(self, source: Source) -> Optional[str]:
        return None if source.node == self._node.name else source.node

    def matched(self, request: Any, computed: int) -> Tuple[int, bool]:
        """How many tokens can be loaded beyond ``computed``. Changes nothing."""
        waiting = self._waiting.get(request.request_id)
        if waiting is None or not self._node.connected:
            return 0, False
        count = min(request.num_prompt_tokens, waiting.source.tokens or request.num_prompt_tokens) - computed
        if count <= 0 or count < self._settings.kv_recompute_threshold:
            return 0, False
        return count, True

    def allocated(self, request: Any, blocks: Any, count: int) -> None:
        """The request has blocks, and loads ``count`` tokens into the last of them; once."""
        waiting = self._waiting.pop(request.request_id, None)
        if waiting is None:
            return
        if count == 0:
            self._tell(self._node.drop, waiting.source)
            return
        self._take(request, waiting.source, blocks.get_block_ids(), count)

    def _take(self, request: Any, source: Source, ids: Sequence[Sequence[int]], count: int) -> None:
        stop = min(request.num_prompt_tokens, source.tokens or request.num_prompt_tokens)
        start = stop - count
        stop = min(whole(stop, self._unit), source.tokens or stop)
        tag = self._name()
        self._next.recvs[tag] = request.request_id
        try:
            take = self._node.take(
                source.key, self._lists(ids, start, stop), peer=self._peer(source), token=source.token, tokens=(start, stop),
                after=start_of(self._step + 1), timeout=self._settings.timeout, tag=tag, trace=source.trace,
                content=_digest(request))
        except Error as error:
            logger.warning("kvpipe: request %s computes its prompt here: %s", request.request_id, error)
            self._next.ended.append((tag, False))
            return
        self._running[tag] = _Running(request.request_id, take)

    def _lists(self, ids: Sequence[Sequence[int]], start: int, stop: int) -> List[List[int]]:
        """The blocks of tokens start .. stop - 1, for each group. Block 0 stands for blocks that a window has left."""
        out = []
        for index, size in zip(self._groups, self._block_sizes):
            group = ids[index][start // size:-(-stop // size)]
            group = [i or NO_BLOCK for i in group] if 0 in group else list(group)
            group.extend([NO_BLOCK] * (-(-stop // size) - start // size - len(group)))
            out.append(group)
        return out

    def _name(self) -> int:
        self._tag += 1
        return self._tag

    # ---- steps

    def step(self, output: Any) -> Step:
        """What the workers are told with the step that is about to run."""
        self._step += 1
        if self._prefills:
            for request in self._prefills.keys() & output.num_scheduled_tokens.keys():
                self._prefills[request] = self._step
        self._collect()
        if self._waiting:
            self._renew()
        step, self._next = self._next, Step(self._step + 1)
        step.last = self._tag
        return step

    def _collect(self) -> None:
        for c in self._node.poll():
            running = self._running.get(c.tag)
            if running is None:
                continue
            if c.terminal and c.status != Status.DONE:
                logger.info("kvpipe: request %s: %s", running.request, c.message)
            if c.released:
                end = running.operation.completion
                self._next.ended.append((c.tag, end is not None and end.status == Status.DONE))
                del self._running[c.tag]

    def _renew(self) -> None:
        now = time.monotonic()
        for request, waiting in self._waiting.items():
            if now >= waiting.renew:
                self._waiting[request] = self._watch(waiting.source)

    # ---- requests go

    def finished(self, request: Any, ids: Sequence[Sequence[int]]) -> Tuple[bool, Optional[Dict[str, Any]]]:
        """(whether its blocks stay until they are reported as sent, what its answer carries)."""
        waiting = self._waiting.pop(request.request_id, None)
        if waiting is not None:
            self._tell(self._node.drop, waiting.source)
            return False, None
        for running in self._running.values():
            if running.request == request.request_id:
                _soon(running.operation.cancel)  # type: ignore[attr-defined]
        step = self._prefills.pop(request.request_id, None)
        if step is None or request.status not in _DELIVERED:
            return False, None
        return self._offer(request, ids, step)

    def _offer(self, request: Any, ids: Sequence[Sequence[int]], step: int) -> Tuple[bool, Optional[Dict[str, Any]]]:
        tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
        if tokens == 0 or not self._node.connected:
            return False, None
        slots = whole(tokens, self._unit)
        lists = self._lists(ids, 0, slots)
        tag = self._name()
        source = Source(self._node.name, _key(self._engine, tag, request.request_id), secrets.token_bytes(16),
                        _trace(request), slots)
        try:
            offer = self._node.offer(
                source.key, lists, tokens=slots, token=source.token, lease=self._settings.lease, after=end_of(step), tag=tag,
                trace=source.trace, content=_digest(request))
        except Error as error:
            logger.warning("kvpipe: request %s is not offered: %s", request.request_id, error)
            return False, None
        self._running[tag] = _Running(request.request_id, offer)
        self._next.sends[tag] = request.request_id
        return True, wire.outgoing(
            blocks=[[i for i in group if i != NO_BLOCK] for group in lists], engine=self._engine, request=request.request_id,
            address=self._settings.advertise or self._node.advertise, tp=self._tp, source=source)

    def close(self) -> None:
        self._node.close()


def _soon(call: Callable[[float], Any]) -> None:
    """Asks for the end of an operation, without waiting for it."""
    try:
        call(1e-6)
    except Timeout:
        pass
    except Error as error:
        logger.debug("kvpipe: %s", error)


def _key(engine: str, tag: int, request: str) -> str:
    key = f"{engine}:{tag}:{request}"
    return key if len(key.encode()) <= 256 else hashlib.blake2b(key.encode(), digest_size=32).hexdigest()


def _trace(request: Any) -> Optional[str]:
    """The W3C trace id, if the request is traced; else its own."""
    parent = (request.trace_headers or {}).get("traceparent", "")
    fields = parent.split("-")
    return fields[1] if len(fields) == 4 else request.request_id.encode()[:64].decode(errors="ignore")


def _digest(request: Any) -> bytes:
    """What the KV depends on beside the model: both sides must agree on it."""
    h = hashlib.blake2b(digest_size=16)
    ids = request.prompt_token_ids
    if ids is not None:
        h.update(array.array("i", ids).tobytes())
    lora = getattr(request, "lora_request", None)
    extra = [getattr(lora, "lora_name", None), getattr(request, "cache_salt", None)]
    extra += [getattr(f, "identifier", None) for f in getattr(request, "mm_features", None) or ()]
    h.update(repr(extra).encode())
    return h.digest()
