"""Engines of any shape, with a model's KV as one array that both sides are compared with."""

import contextlib

import kvpipe
import numpy

LAYERS, HEADS, CONTENT, BLOCKS = 4, 4, 8, 24
UNTOUCHED = 0xEE


def tensor(tokens, heads=HEADS, seed=1):
    """What a prompt's KV is, whoever holds which part of it: [layer, token, head, byte]."""
    return numpy.random.default_rng(seed).integers(0, 0xEE, (LAYERS, tokens, heads, CONTENT), numpy.uint8)


class Rank:
    """A worker: its layers and its heads, each layer one array [block, slot, head, byte] in either order of memory."""

    def __init__(self, socket, engine, tp, pp, world, *, block_size, order, heads, groups, parts):
        self.node = kvpipe.connect(socket, engine_id=engine, rank=(tp, pp), world=world)
        share = LAYERS // world[1]
        self.layers = range(pp * share, (pp + 1) * share)
        self.first = tp * heads // world[0]
        self.heads = max(heads // world[0], 1)
        self.block_size, self.groups = block_size, groups
        size = block_size * self.heads * CONTENT
        strides = (self.heads * CONTENT, CONTENT) if order == "NHD" else (CONTENT, block_size * CONTENT)
        self.region = self.node.alloc(len(self.layers) * len(parts) * BLOCKS * size)
        whole = numpy.frombuffer(self.region, numpy.uint8)
        whole[:] = UNTOUCHED
        self.cache, views = {}, []
        for i, (layer, part) in enumerate((layer, part) for layer in self.layers for part in parts):
            base = i * BLOCKS * size
            views.append(kvpipe.View(self.region, base, layer=layer, part=part, group=groups[layer], num_blocks=BLOCKS,
                                     block_stride=size, block_size=block_size, first_head=self.first, heads=self.heads,
                                     total_heads=heads, strides=strides, content_bytes=CONTENT))
            flat = whole[base : base + BLOCKS * size]
            if order == "NHD":
                array = flat.reshape(BLOCKS, block_size, self.heads, CONTENT)
            else:
                array = flat.reshape(BLOCKS, self.heads, block_size, CONTENT).transpose(0, 2, 1, 3)
            self.cache[layer, part] = array
        self.node.set_layout(views, {"model": "shapes", "heads": heads})


class Side(contextlib.ExitStack):
    """An engine with tp * pp ranks, and its scheduler, `node`."""

    def __init__(self, socket, engine, *, tp=1, pp=1, block_size=16, order="NHD", heads=HEADS, groups=None, parts=("kv",)):
        super().__init__()
        self.block_size, self.parts = block_size, parts
        self.groups = groups or {layer: 0 for layer in range(LAYERS)}
        self.ranks = [Rank(socket, engine, t, p, (tp, pp), block_size=block_size, order=order, heads=heads,
                           groups=self.groups, parts=parts) for p in range(pp) for t in range(tp)]
        self.node = kvpipe.connect(socket, engine_id=engine, role="scheduler")
        for node in [self.node] + [rank.node for rank in self.ranks]:
            self.callback(node.close)

    def ids(self, start, stop, seed):
        """Random block ids for these tokens."""
        count = -(-stop // self.block_size) - start // self.block_size
        return [int(i) for i in numpy.random.default_rng(seed).permutation(BLOCKS)[:count]]

    def _slots(self, rank, ids, start, stop):
        """(layer, part, token, the layer's array, block, slot) of each token that has a block."""
        for (layer, part), array in rank.cache.items():
            mine = ids[rank.groups[layer]] if isinstance(ids[0], list) else ids
            for token in range(start, stop):
                block = mine[token // self.block_size - start // self.block_size]
                if block != kvpipe.NO_BLOCK:
                    yield layer, part, token, array, block, token % self.block_size

    def write(self, ids, start, stop, kv):
        for rank in self.ranks:
            for layer, part, token, array, block, slot in self._slots(rank, ids, start, stop):
                array[block, slot] = kv[part][layer, token, rank.first : rank.first + rank.heads]

    def check(self, ids, start, stop, kv):
        """These tokens are as they should be, and nothing else was written."""
        for rank in self.ranks:
            want = {key: numpy.full_like(array, UNTOUCHED) for key, array in rank.cache.items()}
            for layer, part, token, _, block, slot in self._slots(rank, ids, start, stop):
                want[layer, part][block, slot] = kv[part][layer, token, rank.first : rank.first + rank.heads]
            for key, array in rank.cache.items():
                bad = numpy.argwhere(array != want[key])
                assert not len(bad), f"(layer, part) {key}: {len(bad)} wrong bytes, the first at {bad[0]}"
