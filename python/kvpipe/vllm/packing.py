"""How attention on a CPU lays out the tokens of a block. Its tensors do not tell, so it is found out: some tokens are written
by vLLM's own code, and looked for where they are expected."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from . import layout
from .compat import attention_format, attention_writes, logger, specs_of, transfer_groups
from .requests import Blocks


def found(config: Any, specs: Sequence[Any]) -> str:
    """How an engine's layers are packed: "" if a token's bytes lie as the tensor says, layout.COLUMNS, or a name for what only moves in
    whole blocks. If some layers must, all do. For workers alone: where the layers of a group differ, vLLM shows its scheduler but one."""
    if not _packs(config):
        return ""
    each = {(spec.dtype, spec.block_size, spec.head_size, getattr(spec, "head_size_v", None)): spec for spec in specs}
    if _in_reach(config, len(specs)) and all(in_columns(config, spec) for spec in each.values()):
        return layout.COLUMNS
    return "+".join(sorted({attention_format(config, spec) for spec in each.values()}))


def _packs(config: Any) -> bool:
    """Whether its attention may lay out tokens in ways that tensors do not tell."""
    return bool(config.device_config.device_type == "cpu")


def _in_reach(config: Any, layers: int) -> bool:
    """Whether a layout has room for a view of each head's keys, and of each layer's values. The model alone decides, however many
    ranks it is on: engines that are cut differently, and all ranks of one, have to agree."""
    model = config.model_config
    return max(layers, int(model.get_total_num_hidden_layers())) * (int(model.get_total_num_kv_heads()) + 1) <= layout.MAX_VIEWS


def in_columns(config: Any, spec: Any) -> bool:
    """Whether attention keeps keys and values as layout.columns() has them."""
    if config.model_config.use_mla or getattr(spec, "head_size_v", spec.head_size) != spec.head_size:
        return False
    import torch

    blocks, heads, slots, size = 2, 2, int(spec.block_size), int(spec.head_size)
    cache = torch.zeros(blocks, heads, slots, 2 * size, dtype=spec.dtype)
    numbers = torch.Generator().manual_seed(0)
    key, value = (torch.randn(blocks * slots, heads, size, generator=numbers).to(spec.dtype) for _ in range(2))
    try:
        attention_writes(config, spec, cache, key, value, torch.arange(blocks * slots))
    except Exception:  # another vLLM, or a type that is written otherwise
        return False
    keys, values = (t.reshape(key.shape) for t in layout.columns(cache))
    return bool(torch.equal(keys, key) and torch.equal(values, value))


def drafts(config: Any) -> int:
    """Tokens for which vLLM keeps room beside a request that begins, for it to be decoded speculatively."""
    speculative = getattr(config, "speculative_config", None)
    tokens = int(getattr(speculative, "num_speculative_tokens", None) or 0)
    return 1 + tokens + int(getattr(config, "num_lookahead_tokens", tokens)) if tokens else 0


def blocks(config: Any, cache: Any) -> Blocks:
    """How block tables of this engine are cut into lists: where blocks may be packed, whole, until workers have said that all are not."""
    groups = transfer_groups(cache)
    sizes = [int(cache.kv_cache_groups[i].kv_cache_spec.block_size) for i in groups]
    specs = [spec for i in groups for spec in specs_of(cache.kv_cache_groups[i]).values()]
    return Blocks(groups, sizes, max(sizes, default=1) if _packs(config) else 1, specs, drafts(config))


def heard(blocks: Blocks, forms: Sequence[Optional[str]]) -> None:
    """forms: found() of each rank; None: it is not known."""
    if blocks.unit == 1:
        return
    if all(form is not None and not layout.in_whole_blocks(form) for form in forms):
        blocks.unit = 1
    else:
        said = sorted({form or "unknown" for form in forms})
        logger.info("kvpipe: KV moves in whole blocks (%s), the last one too: both sides need the same --block-size", ", ".join(said))
