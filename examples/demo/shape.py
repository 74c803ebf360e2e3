"""The KV cache of Llama-3.1-8B: how it lies in memory, what is in it, and whether it arrived.

The content of a block depends on the seed, the layer and the block's place in the prompt, so that a block which is
missing, stale, or in the wrong place is seen. It is one random block of 64 KiB, times an odd number, plus another.
"""

import kvpipe
import numpy as np

LAYERS, HEADS, HEAD_SIZE, BLOCK = 32, 8, 128, 16
CONTENT = HEAD_SIZE * 2 * 2  # one token of one head: K and V, bf16
BLOCK_BYTES = BLOCK * HEADS * CONTENT
WORDS = CONTENT // 8
FINGERPRINT = {
    "model": "meta-llama/Llama-3.1-8B",
    "dtype": "bfloat16",
    "layers": LAYERS,
    "kv_heads": HEADS,
    "head_size": HEAD_SIZE,
    "mla": False,
}


class Cache:
    """One rank's KV: `pool` blocks in each layer, `HEADS / tp` heads of them, tokens before heads (NHD) or behind (HND)."""

    def __init__(self, node, pool, tp=1, rank=0, order="NHD"):
        self.pool, self.order = pool, order
        self.heads, self.first = HEADS // tp, HEADS // tp * rank
        self.block_bytes = BLOCK_BYTES // tp
        self.region = node.alloc(LAYERS * pool * self.block_bytes)
        node.set_layout([self._view(layer) for layer in range(LAYERS)], FINGERPRINT)
        inner = (BLOCK, self.heads, WORDS) if order == "NHD" else (self.heads, BLOCK, WORDS)
        self.words = np.frombuffer(self.region, np.uint64).reshape(LAYERS, pool, *inner)

    def _view(self, layer):
        strides = (self.heads * CONTENT, CONTENT) if self.order == "NHD" else (CONTENT, BLOCK * CONTENT)
        return kvpipe.View(
            self.region,
            base=layer * self.pool * self.block_bytes,
            layer=layer,
            num_blocks=self.pool,
            block_stride=self.block_bytes,
            block_size=BLOCK,
            first_head=self.first,
            heads=self.heads,
            total_heads=HEADS,
            strides=strides,
            content_bytes=CONTENT,
        )

    def _content(self, seed, layer, positions):
        """What this rank holds of the blocks at some positions of the prompt."""
        template = np.random.Generator(np.random.SFC64(seed)).integers(0, 2**63, (BLOCK, HEADS, WORDS), np.uint64)
        template = template[:, self.first : self.first + self.heads]
        if self.order == "HND":
            template = template.transpose(1, 0, 2)
        factor = (np.uint64(layer * 2**20) + positions.astype(np.uint64)) * np.uint64(2) + np.uint64(1)
        return np.ascontiguousarray(template)[None] * factor[:, None, None, None] + np.uint64(seed)

    def _pieces(self, count):
        """Layers, in pieces that stay within a cache of a few MiB."""
        for layer in range(LAYERS):
            for start in range(0, count, 64):
                yield layer, np.arange(start, min(start + 64, count))

    def fill(self, seed, ids):
        for layer, positions in self._pieces(len(ids)):
            self.words[layer, ids[positions]] = self._content(seed, layer, positions)

    def wipe(self, byte=0):
        """Every block, so that what was there before cannot pass for what should have come."""
        np.frombuffer(self.region, np.uint8).fill(byte)

    def wrong(self, seed, ids):
        """How many of the listed blocks, over all layers, do not hold what fill() wrote."""
        bad = 0
        for layer, positions in self._pieces(len(ids)):
            same = self.words[layer, ids[positions]] == self._content(seed, layer, positions)
            bad += int((~same.all(axis=(1, 2, 3))).sum())
        return bad

    def touched(self, ids, byte=0):
        """How many blocks outside the list, or in it when ids is empty, are not as wipe() left them."""
        rest = np.setdiff1d(np.arange(self.pool), ids)
        word = np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))
        return sum(int((self.words[layer, rest] != word).any(axis=(1, 2, 3)).sum()) for layer in range(LAYERS))

    def close(self):
        del self.words
        self.region.close()


def draw(seed, pool, count):
    """`count` different block ids below `pool`, at random."""
    return np.random.Generator(np.random.SFC64(seed)).permutation(pool)[:count].astype(np.uint32)


def descriptors(pool, source, destination):
    """The same hand-over as plain programs see it: two lists of 64 KiB blocks, layer after layer."""
    layers = np.arange(LAYERS, dtype=np.uint32)[:, None] * np.uint32(pool)
    return (layers + source).ravel(), (layers + destination).ravel()
