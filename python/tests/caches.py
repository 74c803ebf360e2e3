"""Small KV caches for tests."""

import select

import kvpipe

BLOCK_SIZE, HEADS, CONTENT = 16, 4, 32
BLOCK = BLOCK_SIZE * HEADS * CONTENT
FINGERPRINT = {"model": "test", "layers": 2, "mla": False}


def view(region, layer=0, *, blocks=32, base=None, heads=HEADS, first=0, order="NHD", group=0, part="kv"):
    size = BLOCK_SIZE * heads * CONTENT
    strides = (heads * CONTENT, CONTENT) if order == "NHD" else (CONTENT, BLOCK_SIZE * CONTENT)
    return kvpipe.View(
        region, layer * blocks * size if base is None else base, layer=layer, part=part, group=group,
        num_blocks=blocks, block_stride=size, block_size=BLOCK_SIZE, first_head=first, heads=heads,
        total_heads=HEADS, strides=strides, content_bytes=CONTENT,
    )


def collect(node, want):
    """Polls, sleeping on the node's descriptor, until there are that many completions."""
    got = []
    with select.epoll() as epoll:
        epoll.register(node.fileno(), select.EPOLLIN)
        while len(got) < want:
            assert epoll.poll(60), "nothing within 60 s"
            got += node.poll()
    return got


class Cache:
    """A worker's session with `layers` layers of `blocks` blocks."""

    def __init__(self, socket, engine, *, layers=2, blocks=32, fingerprint=FINGERPRINT, tp=1, rank=0, order="NHD",
                 instance=None):
        self.node = kvpipe.connect(socket, engine_id=engine, rank=(rank, 0), world=(tp, 1), instance=instance)
        self.layers, self.blocks, self.size = layers, blocks, BLOCK // tp
        self.region = self.node.alloc(layers * blocks * self.size)
        heads = HEADS // tp
        self.node.set_layout(
            [view(self.region, i, blocks=blocks, heads=heads, first=heads * rank, order=order) for i in range(layers)],
            fingerprint,
        )

    def block(self, layer, number):
        start = (layer * self.blocks + number) * self.size
        return memoryview(self.region)[start : start + self.size]

    def fill(self, number, salt):
        """Every layer of a block gets bytes of its own."""
        for layer in range(self.layers):
            self.block(layer, number)[:] = self._pattern(salt, layer)

    def holds(self, number, salt):
        return all(
            self.block(layer, number) == self._pattern(salt, layer) for layer in range(self.layers)
        )

    def _pattern(self, salt, layer):
        start = (salt * 31 + layer * 7) & 0xFF
        return (bytes(range(256)) * (self.size // 256 + 2))[start : start + self.size]

    def close(self):
        self.node.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
