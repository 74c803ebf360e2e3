"""Settings against the engine that has them."""

from __future__ import annotations

from typing import Any, Optional

from .compat import LOADS_BY_LAYER, by_blocks, takes_back, version


def unsuited(settings: Any, config: Any, kv_cache_config: Any) -> Optional[str]:
    """Which of the settings cannot work in this engine, in one line; None when all can."""
    role = config.kv_transfer_config.kv_role
    if settings.layerwise and not LOADS_BY_LAYER:
        return f"layerwise needs vLLM 0.32 or newer, this is {version()}: leave it out"
    if settings.layerwise and kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) > 1:
        return "layerwise is not supported for models with several KV cache groups: a load that fails could not be reported; leave it out"
    if settings.layerwise and kv_cache_config is not None and not by_blocks(kv_cache_config):
        return "layerwise is not supported for models whose attention has a window of tokens: after a load that fails they could not " \
               "compute on, since blocks before the window are gone; leave it out"
    if settings.layerwise and config.parallel_config.pipeline_parallel_size > 1:
        return "layerwise is not supported with --pipeline-parallel-size above 1: several steps are under way at a time, and what was " \
               "computed behind a load that fails would be believed; leave one of the two out"
    if settings.layerwise and role != "kv_producer" and config.scheduler_config.async_scheduling:
        return "layerwise is not supported with asynchronous scheduling: what was computed behind a load that fails would be believed; " \
               "add --no-async-scheduling"
    if settings.layerwise and role != "kv_producer" and not takes_back(config):
        return "layerwise is not supported with Model Runner V2 where KV is loaded: it computes on behind a load that fails; " \
               "set VLLM_USE_V2_MODEL_RUNNER=0"
    if settings.decode_offer and role == "kv_producer":
        return "decode_offer is for decode engines, and kv_role is \"kv_producer\": leave it out, or make the role \"kv_both\""
    return None
