"""All that is used of vLLM, of its newest three minor versions. No other module imports vLLM, so what a release moves is
mended here. A symbol that is missing is an error that names it."""

from __future__ import annotations

import importlib
import re
import types
from typing import Any, Callable, Dict, Optional, Tuple

OLDEST, NEWEST = (0, 31), (0, 33)

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1.base"
_OF_WORKER = "vllm.distributed.kv_transfer.kv_transfer_state"
_SPECS = "vllm.v1.kv_cache_interface"
#: how vLLM names a multimodal input that it has not hashed: by its number in this instance
_COUNTED = re.compile(r"renderer\d+-mm-\d+-")


def _get(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"kvpipe: vLLM {version()} has no {module}.{name} ({error}): this release of kvpipe is for vLLM "
                          f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}; install a pair that fits") from None


def version() -> str:
    return str(importlib.import_module("vllm").__version__)


def check_version() -> None:
    """Raises ImportError, in one line, for a vLLM that is too old; a newer one may work, and is tried."""
    numbers = tuple(importlib.import_module("vllm").__version_tuple__[:2])
    if all(isinstance(n, int) for n in numbers) and (0, 0) < numbers < OLDEST:
        raise ImportError(f"kvpipe: vLLM {version()} is not supported: use {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}")


Base: Any = _get(_V1, "KVConnectorBase_V1")
#: whether connectors are told when an engine sleeps; since 0.33
TELLS_OF_SLEEP = hasattr(Base, "unregister_kv_caches")
#: whether a step can load layer by layer; since 0.32
LOADS_BY_LAYER = hasattr(Base, "bind_kv_cache_manager")
Metadata: Any = _get(_V1, "KVConnectorMetadata")
WorkerMetadata: Any = _get(_V1, "KVConnectorWorkerMetadata")
Role: Any = _get(_V1, "KVConnectorRole")
SupportsHMA: Any = _get(_V1, "SupportsHMA")
Stats: Any = _get("vllm.distributed.kv_transfer.kv_connector.v1.metrics", "KVConnectorStats")
PromMetrics: Any = _get("vllm.distributed.kv_transfer.kv_connector.v1.metrics", "KVConnectorPromMetrics")
RequestStatus: Any = _get("vllm.v1.request", "RequestStatus")
Results: Any = _get(_V1, "KVConnectorTransferResults")
logger: Any = _get("vllm.logger", "init_logger")("vllm.kvpipe")
_SlidingWindow: Any = _get(_SPECS, "SlidingWindowSpec")
_ChunkedLocal: Any = _get(_SPECS, "ChunkedLocalAttentionSpec")


def content_of(feature: Any) -> str:
    """What tells a multimodal input from others, on every instance: vLLM's hash of it. Where prefix caching and the processor's
    cache are both off, vLLM only counts inputs; then it is a hash of what goes into the model."""
    name = str(feature.mm_hash or feature.identifier)
    if feature.data is None or not _COUNTED.match(name):
        return name
    return str(_get("vllm.multimodal.hasher", "MultiModalHasher").hash_kwargs("sha256", **feature.data.get_data()))


def cache_hit_source() -> Any:
    """The label of cache hits; None if this vLLM does not tell their sources apart."""
    try:
        return _get("vllm.v1.metrics.cache_hit_source", "CacheHitSource").P2P
    except ImportError:
        return None


def data_transport() -> Tuple[Any, Any]:
    """vLLM's DataTransport, for its tier of KV that lies with peers, and the type of what its poll() returns."""
    module = "vllm.v1.kv_offload.tiering.p2p.data.base"
    return _get(module, "DataTransport"), _get(module, "PollResult")


def register(name: str, module: str) -> None:
    """Makes the class known by name; once, however often plugins are loaded."""
    factory = _get("vllm.distributed.kv_transfer.kv_connector.factory", "KVConnectorFactory")
    if name not in factory._registry:
        factory.register_connector(name, module, name)


def groups() -> Tuple[Any, Any]:
    """This worker's group of tensor parallelism, and that of pipeline parallelism."""
    state = "vllm.distributed.parallel_state"
    return _get(state, "get_tp_group")(), _get(state, "get_pp_group")()


def rank() -> Tuple[int, int]:
    """(tp, pp) of this worker."""
    tp, pp = groups()
    return int(tp.rank_in_group), int(pp.rank_in_group)


def is_alone(connector: Any) -> bool:
    """Whether it is this worker's only connector, not one in MultiConnector."""
    return bool(_get(_OF_WORKER, "has_kv_transfer_group")()) and _get(_OF_WORKER, "get_kv_transfer_group")() is connector


def layer_number(name: str) -> int:
    return int(_get("vllm.model_executor.models.utils", "extract_layer_index")(name))


def of_draft_model(name: str, own: int) -> bool:
    """Whether the layer is a draft model's. own: the number of layers of the served model; a draft model's count from 0 again."""
    return name.startswith("draft_model.") or "mtp" in name.split(".") and layer_number(name) < own


def draft_config(config: Any) -> Any:
    """The draft model's config. If no model drafts, vLLM has the served model's there, or None."""
    return getattr(getattr(config, "speculative_config", None), "draft_model_config", None)


def attention_format(config: Any, spec: Any) -> str:
    """The name of the way in which attention on a CPU lays out the bytes of a block."""
    isa = _get("vllm.v1.attention.backends.cpu_attn", "_get_attn_isa")
    return "cpu-" + str(isa(spec.dtype, spec.block_size, spec.head_size, config.cache_config.cache_dtype))


def attention_writes(config: Any, spec: Any, cache: Any, key: Any, value: Any, slots: Any) -> None:
    """Has attention on a CPU write tokens as in a step. cache: [block, head, token, K and V]; key, value: [token, head, content];
    slots: [token], where each goes, block * block_size + offset."""
    form = attention_format(config, spec)
    impl = types.SimpleNamespace(attn_type="decoder", kv_cache_dtype=config.cache_config.cache_dtype)
    layer = types.SimpleNamespace(isa=form.partition("-")[2], _k_scale_float=1.0, _v_scale_float=1.0)
    _get("vllm.v1.attention.backends.cpu_attn", "CPUAttentionBackendImpl").do_kv_cache_update(impl, layer, key, value, cache, slots)


def refusal(config: Any, kv_cache_config: Any) -> Optional[str]:
    """Why this engine cannot use kvpipe, in one line; None when it can."""
    model, parallel, device = config.model_config, config.parallel_config, config.device_config.device_type
    if model is not None and getattr(model, "is_encoder_decoder", False):
        return "encoder-decoder models are not supported: their cross attention is not part of a hand-over"
    for kind in ("decode", "prefill"):
        if getattr(parallel, f"{kind}_context_parallel_size", 1) > 1:
            return f"--{kind}-context-parallel-size above 1 is not supported: its KV is spread over ranks by token; use 1"
    if getattr(model, "enable_sleep_mode", False) and not TELLS_OF_SLEEP:
        return ("--enable-sleep-mode needs vLLM 0.33 or newer: this one does not tell that sleep takes the KV memory away, and the "
                "daemon would go on using it; leave it out")
    if device != "cpu":
        return f"KV on {device} needs the GPU transport, which this build of kvpipe does not have: it moves KV of CPU engines"
    for group in kv_cache_config.kv_cache_groups if kv_cache_config is not None else ():
        for spec in specs_of(group).values():
            if hasattr(spec, "shapes") or not hasattr(spec, "head_size"):
                return f"{type(spec).__name__} (layer {group.layer_names[0]}) is not supported: only attention with paged KV is"
            if getattr(spec, "tokens_per_state", 1) != 1 or getattr(group, "host_resident", False):
                return f"{type(spec).__name__} (layer {group.layer_names[0]}) keeps other than one state for each token: not supported"
    return None


def failed_of(connector_output: Any) -> Any:
    """Requests whose load failed, where vLLM passes them on to schedulers."""
    return getattr(connector_output, "failed_recving", None)


def room(manager: Any) -> Callable[[], int]:
    """How many blocks the pool of this KV cache manager has for a request that waits."""
    return lambda: int(manager.block_pool.get_num_free_blocks() - getattr(manager, "watermark_blocks", 0))


def nodes_of(config: Any) -> int:
    """On how many nodes its ranks are."""
    return int(getattr(config.parallel_config, "nnodes_within_dp", 1))


def takes_back(config: Any) -> bool:
    """Whether a step that computed on a failed load can be taken back. Not with Model Runner V2, which goes on from the tokens that it
    has reached itself. A vLLM that does not say which runner it has may have that one."""
    return not getattr(config, "use_v2_model_runner", True)


def specs_of(group: Any) -> Dict[str, Any]:
    """Layer -> its spec: a group whose layers differ keeps one for each."""
    each = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    return {name: each[name] if each else group.kv_cache_spec for name in group.layer_names}


def skipped(spec: Any, tokens: int) -> int:
    """How many of so many computed tokens those to come do not look at. vLLM gives up blocks that hold only such tokens."""
    if isinstance(spec, _SlidingWindow):
        return int(max(tokens - spec.sliding_window + 1 - getattr(spec, "extra_retained_tokens", 0), 0))
    return int(tokens // spec.attention_chunk_size * spec.attention_chunk_size) if isinstance(spec, _ChunkedLocal) else 0


def by_blocks(kv_cache_config: Any) -> bool:
    """Whether a failed load can be reported to vLLM by its blocks. vLLM computes from the first of them on, so all before it must be
    there, and windows leave blocks behind; and a block's number must say which group's it is."""
    groups = kv_cache_config.kv_cache_groups
    return len(groups) == 1 and not any(isinstance(spec, (_SlidingWindow, _ChunkedLocal)) for spec in specs_of(groups[0]).values())


def transfer_groups(kv_cache_config: Any) -> Tuple[int, ...]:
    """Numbers of the groups that are handed over."""
    return tuple(i for i, g in enumerate(kv_cache_config.kv_cache_groups) if getattr(g, "enable_kv_transfer", True))
