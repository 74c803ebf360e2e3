"""From the engine's KV tensors to views. Strides are read from the tensors, never assumed."""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from ..errors import Incompatible
from ..layout import View

#: keys by content and token, values by token and content (vLLM's csrc/cpu/cpu_attn_vec.hpp): see columns()
COLUMNS = "columns"

#: the most views of a layout that daemons accept
MAX_VIEWS = 4096


class Heads(NamedTuple):
    """Which rank's share of the kv heads."""

    rank: int
    ranks: int


class Layer(NamedTuple):
    """What is known of a layer beside its tensor."""

    name: str
    number: int
    group: int
    block_size: int
    kv_heads: int  # of this rank
    total: int  # of all ranks together, without copies
    draft: bool = False  # of a draft model, whose numbers go on behind the model's


class Part(NamedTuple):
    """The elements of a layer that one view describes."""

    name: str
    tensor: Any  # [block, token, head, content]
    first: int  # head, model-wide
    total: int  # heads of the model


def describe(layer: Layer, tensor: Any, num_blocks: int, heads: Heads, place: Tuple[Any, int], part: str = "kv",
             packed: bool = False) -> List[View]:
    """The views of one layer. place: the tensor's region, and the byte in it at which the tensor begins. packed: blocks lie
    as columns() has them."""
    region, base = place
    item = tensor.element_size()
    out = []
    for name, sub, first, total in _columns(layer, tensor, heads, part) if packed else _parts(layer, tensor, num_blocks, heads, part):
        blocks, slots, count, content = sub.shape
        if blocks != num_blocks or slots != layer.block_size:
            raise Incompatible(
                f"layer {layer.name}: its tensor has {blocks} blocks of {slots} tokens, the cache {num_blocks} of "
                f"{layer.block_size}: the attention kernel uses other blocks than the cache; set --block-size {slots}")
        if content > 1 and sub.stride(3) != 1:
            raise Incompatible(f"layer {layer.name}: the bytes of a token and head do not lie together "
                               f"(stride {sub.stride(3)}): this layout of the cache is not supported")
        out.append(View(
            region, base + (sub.storage_offset() - tensor.storage_offset()) * item, layer=layer.number, part=name,
            group=layer.group, num_blocks=blocks, block_stride=sub.stride(0) * item, block_size=slots, first_head=first,
            heads=count, total_heads=total, strides=(sub.stride(1) * item, sub.stride(2) * item), content_bytes=content * item))
    return out


def _parts(layer: Layer, tensor: Any, num_blocks: int, heads: Heads, part: str) -> List[Part]:
    """The parts of a tensor that says where its elements lie; K and V are apart where they lie apart."""
    if tensor.dim() == 4:  # [block, head, token, content], K and V in the content
        found = [(part, tensor.transpose(1, 2))]
    elif tensor.dim() == 3:  # [block, token, content]: MLA, of which all ranks have all
        return [Part(part, tensor.unsqueeze(2), 0, 1)]
    elif tensor.dim() == 5 and tensor.shape[0] == 2 and tensor.shape[1] == num_blocks:  # [K or V, block, token, head, content]
        found = [("k", tensor[0]), ("v", tensor[1])]
    elif tensor.dim() == 5 and tensor.shape[1] == 2:  # [block, K or V, token, head, content]
        found = [("k", tensor[:, 0]), ("v", tensor[:, 1])]
    else:
        raise Incompatible(f"a KV tensor of shape {tuple(tensor.shape)} is not known to this release")
    return [Part(name, sub, *share(sub.shape[2], layer, heads)) for name, sub in found]


def columns(tensor: Any) -> Tuple[Any, Any]:
    """(keys, values) as [block, token, head, content], of a tensor [block, head, token, K and V] in which a block of a head
    has its keys first, as [content, token], and then its values, as [token, content]."""
    blocks, count, slots, both = tensor.shape
    size, first = both // 2, tensor.storage_offset()
    block, head = tensor.stride(0), tensor.stride(1)
    shape = (blocks, slots, count, size)
    return (tensor.as_strided(shape, (block, 1, head, slots), first),
            tensor.as_strided(shape, (block, size, head, 1), first + slots * size))


def _columns(layer: Layer, tensor: Any, heads: Heads, part: str) -> List[Part]:
    """A view has one stride for heads. So each head's keys are a part of their own, whose heads are the rows of its content."""
    if tensor.dim() != 4 or tensor.stride()[2:] != (tensor.shape[3], 1):
        raise Incompatible(f"layer {layer.name}: a block of a head does not lie together (shape {tuple(tensor.shape)}, "
                           f"strides {tensor.stride()}): this layout of the cache is not supported")
    keys, values = columns(tensor)
    first, total = share(tensor.shape[1], layer, heads)
    rows = [Part(f"{part}.k{first + i}", keys[:, :, i].unsqueeze(3), 0, keys.shape[3]) for i in range(keys.shape[2])]
    return [*rows, Part(f"{part}.v", values, first, total)]


def share(slots: int, layer: Layer, heads: Heads) -> Tuple[int, int]:
    """(first head, heads in all) of a rank whose tensor has ``slots`` heads: ranks beyond the layer's heads hold copies."""
    per, total = max(slots // max(layer.kv_heads, 1), 1), layer.total  # some formats keep several slots for a head
    if slots // per == 1 and heads.ranks > total and heads.ranks % total == 0:  # else the layer has more than the model says
        return heads.rank // (heads.ranks // total) * per, total * per
    return heads.rank * slots, heads.ranks * slots


def kv_heads(model: Any, number: int, spec: Any) -> int:
    """The kv heads of this layer of the model, on all ranks together."""
    if model.use_mla:
        return 1
    total = model.get_total_num_kv_heads()
    each = getattr(getattr(model, "model_arch_config", None), "per_layer_overrides", None) or ()
    if number < len(each):
        return int(each[number].get("total_num_kv_heads", total))
    # MiMo-V2 has another number for its layers with a window.
    window = getattr(spec, "sliding_window", None)
    return int(window and getattr(getattr(model, "hf_text_config", None), "swa_num_key_value_heads", None) or total)


def parts(layers: List[Layer]) -> Dict[str, str]:
    """Layer's name -> part. Several tensors of one layer number are told apart by the order of their names. A draft model's layers have
    parts of their own, so that an engine without a draft model does not take them for the model's."""
    by_number: Dict[Tuple[int, str], List[str]] = {}
    for layer in layers:
        by_number.setdefault((layer.number, "draft" if layer.draft else "kv"), []).append(layer.name)
    return {name: part if i == 0 else f"{part}{i}" for (_, part), names in by_number.items() for i, name in enumerate(sorted(names))}


def views(layers: List[Layer], caches: Dict[str, Any], num_blocks: int, heads: Heads,
          place: Callable[[Any], Tuple[Any, int]], packed: bool = False) -> List[View]:
    """The views of a rank. Layers that share another layer's cache have none of their own."""
    names = parts(layers)
    out: List[View] = []
    for layer in layers:
        tensor = caches[layer.name]
        out.extend(describe(layer, tensor, num_blocks, heads, place(tensor), names[layer.name], packed))
    return out


def model_name(model: str, override: str = "") -> str:
    """A name on which engines agree that keep the model in different places: the last part of its path, or of the hub's name for it
    when it lies in a hub's cache."""
    if override:
        return override
    path = [p for p in model.split(os.sep) if p]
    for part in reversed(path):
        if part.startswith("models--"):
            return part.split("--")[-1]
    return path[-1] if path else model


def fingerprint(config: Any, specs: Sequence[Any], sizes: Sequence[int], form: str, override: str = "") -> Dict[str, Any]:
    """What both sides must have in common. specs: of the model's own layers alone, as one side may have a draft model that the other
    lacks; where they differ, all count. sizes: block sizes of all layers, group by group. form: how attention fills a block, if not
    token after token."""
    model = config.model_config
    out: Dict[str, Any] = {
        "model": model_name(model.model, override),
        "revision": model.revision or "none",
        "kv_dtype": _all(sorted({str(spec.dtype).replace("torch.", "") for spec in specs})),
        "kv_cache_dtype": str(config.cache_config.cache_dtype),
        "layers": int(model.get_total_num_hidden_layers()),
        "kv_heads": int(model.get_total_num_kv_heads()),
        "head_size": _all(sorted({int(spec.head_size) for spec in specs})),
        "mla": bool(model.use_mla),
        "format": form or "token",
    }
    if in_whole_blocks(form):
        out["block_size"] = _all([size for size, _ in itertools.groupby(sizes)])
    return out


def _all(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else "+".join(str(value) for value in values)


def in_whole_blocks(form: str) -> bool:
    """Whether no part of a block can be named: blocks move whole, and must be of one size."""
    return form not in ("", COLUMNS)
