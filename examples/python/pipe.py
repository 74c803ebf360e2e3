#!/usr/bin/env python3
"""Tensors from one process to another: in order through a pipe, and by their tokens through a lookup buffer.

usage: pipe.py                (or KVPIPE_SOCKET=/path/to/kvpiped.sock pipe.py), `kvpiped --dev` running beside it
"""

import array
import multiprocessing

import kvpipe


def prefill():
    with kvpipe.connect(engine_id="prefill-0") as node:
        with node.pipe("activations", "send", capacity=1 << 20) as tx:
            for step in range(3):
                tx.send_tensor(array.array("f", [step] * 4))  # or a tensor of torch or numpy: any shape, any strides
            tx.send_tensor(None)  # a value of its own: neither an error nor the end
        with node.lookup_buffer("results", capacity=1 << 20) as buffer:
            for prompt in ([1, 2, 3, 4], [1, 9]):
                tokens = array.array("q", prompt)
                buffer.insert(tokens, None, bytes(len(prompt)), bytes(len(prompt)), None)  # tokens, roi, key, value, hidden
            node.pipe("done", "recv").recv_tensor(framework="raw")


def main():
    producer = multiprocessing.get_context("spawn").Process(target=prefill)
    producer.start()
    # Either side may be first. On another node: peer="its name".
    with kvpipe.connect(engine_id="decode-0") as node:
        with node.pipe("activations", "recv") as rx:
            for tensor in (rx.recv_tensor(framework="raw") for _ in range(4)):
                print(tensor and (tensor.dtype, tensor.shape, tensor.data.cast("f")[0]))
        with node.lookup_buffer("results") as buffer:
            entry = buffer.drop_select(array.array("q", [1, 9, 5]), framework="raw")
            print(f"{entry.matched} tokens agree, {len(entry[2].data)} bytes of keys")
            buffer.drop_select(framework="raw")  # whatever is left
        with node.pipe("done", "send") as done:
            done.send_tensor(None)
    producer.join()


if __name__ == "__main__":
    main()
