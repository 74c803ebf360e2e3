#!/usr/bin/env python3
"""The smallest complete hand-over: a producer and a consumer on one node, `kvpiped --dev` running beside them.

usage: handover.py            (or KVPIPE_SOCKET=/path/to/kvpiped.sock handover.py)
"""

import multiprocessing

import kvpipe

LAYERS, BLOCKS, TOKENS_PER_BLOCK, HEADS, CONTENT = 2, 64, 16, 8, 512
BLOCK = TOKENS_PER_BLOCK * HEADS * CONTENT  # bytes of one layer's block
FINGERPRINT = {"model": "example", "dtype": "bfloat16"}


def cache(node):
    """Allocates the KV cache and says how it lies: layers one after the other, tokens before heads."""
    region = node.alloc(LAYERS * BLOCKS * BLOCK)
    views = [
        kvpipe.View(
            region, base=layer * BLOCKS * BLOCK, layer=layer, num_blocks=BLOCKS, block_stride=BLOCK,
            block_size=TOKENS_PER_BLOCK, heads=HEADS, strides=(HEADS * CONTENT, CONTENT), content_bytes=CONTENT,
        )
        for layer in range(LAYERS)
    ]
    node.set_layout(views, FINGERPRINT)
    return memoryview(region)


def prefill(pipe):
    with kvpipe.connect(engine_id="prefill-0") as node:
        kv = cache(node)
        kv[5 * BLOCK : 6 * BLOCK] = b"K" * BLOCK  # what a model would write: block 5 of layer 0
        offer = node.offer("request-1", [5, 9], tokens=20)  # 20 tokens: one whole block and 4 of the next
        pipe.send(offer.token)  # travels with the request, here over a pipe
        offer.wait()  # taken: the blocks are free again


def main():
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    producer = spawn.Process(target=prefill, args=(theirs,))
    producer.start()
    theirs.close()
    with kvpipe.connect(engine_id="decode-0") as node:
        kv = cache(node)
        done = node.take("request-1", [30, 31], token=ours.recv(), tokens=20).wait()
        assert kv[30 * BLOCK : 31 * BLOCK] == b"K" * BLOCK
        print(f"{done.bytes} bytes handed over")
    producer.join()


if __name__ == "__main__":
    main()
