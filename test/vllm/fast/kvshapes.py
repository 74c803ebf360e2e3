"""KV caches as attention backends lay them out: shapes and strides of real ones, with small numbers, in memory of a daemon."""

import torch

import kvpipe
from kvpipe.vllm import layout
from kvpipe.vllm.compat import of_draft_model

SIZE = 8  # of a head
LATENT = 72  # of a token, with MLA
PAD = 40  # elements after each block, where pages are made equal
LEAD = 72  # elements before the first block


# Each makes the tensors of the layers over a flat one: as vLLM hands them to register_kv_caches().

def _packed_hnd(flat, layers, blocks, slots, heads):
    return flat.view(layers, blocks, heads, slots, 2 * SIZE).unbind(0)


def _packed_nhd(flat, layers, blocks, slots, heads):
    """The same shape to its users; in memory a token's heads lie together."""
    return flat.view(layers, blocks, slots, heads, 2 * SIZE).permute(0, 1, 3, 2, 4).unbind(0)


def _cross_hnd(flat, layers, blocks, slots, heads):
    """One tensor for all layers: a block has all of them."""
    return flat.view(blocks, heads, layers, slots, 2 * SIZE).unbind(2)


def _cross_nhd(flat, layers, blocks, slots, heads):
    return flat.view(blocks, layers, slots, heads, 2 * SIZE).permute(0, 1, 3, 2, 4).unbind(1)


def _padded(flat, layers, blocks, slots, heads):
    """Pages larger than their content, and something before the first."""
    page = slots * heads * 2 * SIZE + PAD
    return [flat.as_strided((blocks, heads, slots, 2 * SIZE), (page, slots * 2 * SIZE, 2 * SIZE, 1), LEAD + i * blocks * page)
            for i in range(layers)]


def _columns(flat, layers, blocks, slots, heads):
    """A CPU's: of each head the keys of a block, by content and token, then its values, by token and content."""
    return flat.view(layers, blocks, heads, slots, 2 * SIZE).unbind(0)


def _of_columns(t):
    blocks, heads, slots, _ = t.shape
    halves = t.view(blocks, heads, 2, slots * SIZE)
    return [halves[:, :, 0].view(blocks, heads, SIZE, slots).permute(0, 3, 1, 2),
            halves[:, :, 1].view(blocks, heads, slots, SIZE).permute(0, 2, 1, 3)]


def _split_first(flat, layers, blocks, slots, heads):
    """FlashAttention's before vLLM 0.26: all keys, then all values."""
    return flat.view(layers, 2, blocks, slots, heads, SIZE).unbind(0)


def _split_second(flat, layers, blocks, slots, heads):
    """FlashInfer's before vLLM 0.26: a block's keys, then its values."""
    return flat.view(layers, blocks, 2, slots, heads, SIZE).unbind(0)


def _mla(flat, layers, blocks, slots, heads):
    return flat.view(layers, blocks, slots, LATENT).unbind(0)


def _mla_padded(flat, layers, blocks, slots, heads):
    page = slots * LATENT + PAD
    return [flat.as_strided((blocks, slots, LATENT), (page, LATENT, 1), LEAD + i * blocks * page) for i in range(layers)]


# What the tensors' elements are, as [block, token, head, content]: one for each part.
_PACKED = lambda t: [t.transpose(1, 2)]  # noqa: E731
_LATENT = lambda t: [t.unsqueeze(2)]  # noqa: E731

SHAPES = {
    "packed HND": (_packed_hnd, _PACKED),
    "packed NHD": (_packed_nhd, _PACKED),
    "cross-layer HND": (_cross_hnd, _PACKED),
    "cross-layer NHD": (_cross_nhd, _PACKED),
    "padded": (_padded, _PACKED),
    "K/V first": (_split_first, lambda t: [t[0], t[1]]),
    "K/V second": (_split_second, lambda t: [t[:, 0], t[:, 1]]),
    "columns": (_columns, _of_columns),
    "MLA": (_mla, _LATENT),
    "MLA padded": (_mla_padded, _LATENT),
}
PACKED, SPLIT, COLUMNS, LATENTS = (list(SHAPES)[i:j] for i, j in ((0, 5), (5, 7), (7, 8), (8, 10)))


def _elements(shape, layers, blocks, slots, heads):
    page = slots * (LATENT if shape in LATENTS else heads * 2 * SIZE) + (PAD if "padded" in shape else 0)
    return layers * blocks * page + (LEAD if "padded" in shape else 0)


class Cache:
    """A worker's session with a cache of one of the SHAPES: rank ``rank`` of ``tp``, of a model with ``heads`` kv heads. whole: of
    columns, whose blocks only move whole. drafts: how many layers a draft model has beside.

    ``parts``: (group, [block, token, head, content]) of every part of every layer, whatever the shape.
    """

    def __init__(self, socket, engine, shape, *, layers=3, blocks=12, slots=16, heads=4, tp=1, rank=0,
                 dtype=torch.float16, group=lambda layer: 0, whole=False, drafts=0):
        self.node = kvpipe.connect(socket, engine_id=engine, rank=(rank, 0), world=(tp, 1))
        heads = 1 if shape in LATENTS else heads
        self.slots, self._total = slots, heads
        self._mine, self._first = max(heads // tp, 1), rank * heads // tp
        of_heads = layout.Heads(rank, tp)
        build, parts = SHAPES[shape]
        item = torch.empty(0, dtype=dtype).element_size()
        names = {f"{model}.layers.{i}.attn": first + i for model, first, n in (("model", 0, layers), ("draft_model.model", layers, drafts))
                 for i in range(n)}
        known = [layout.Layer(name, i, group(i), slots, heads, heads, of_draft_model(name, len(names))) for name, i in names.items()]
        layers = len(known)
        region = self.node.alloc(_elements(shape, layers, blocks, slots, self._mine) * item)
        self.memory = torch.frombuffer(region, dtype=torch.uint8)
        self.memory.fill_(0xA5)
        tensors = build(self.memory.view(dtype), layers, blocks, slots, self._mine)
        caches = {layer.name: t for layer, t in zip(known, tensors)}
        self.views = layout.views(known, caches, blocks, of_heads, lambda t: (region, t.data_ptr() - region.address),
                                  shape in COLUMNS and not whole)
        self.node.set_layout(self.views, {"model": "tiny"})
        self.parts = [(group(i), part) for i, t in enumerate(tensors) for part in parts(t)]

    def model(self, seed):
        """Numbers for every part: of all heads of the model, in blocks of this cache's size."""
        generator = torch.Generator().manual_seed(seed)
        for _, part in self.parts:
            blocks, slots, _, content = part.shape
            yield torch.randn((blocks, slots, self._total, content), generator=generator).to(part.dtype)

    def mine(self, numbers):
        """This rank's heads of them."""
        return numbers[:, :, self._first:self._first + self._mine]

    def fill(self, seed):
        for (_, part), numbers in zip(self.parts, self.model(seed)):
            part.copy_(self.mine(numbers))

    def close(self):
        self.node.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
