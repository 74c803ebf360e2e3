"""A session without a daemon, for tests of what either side makes of its words."""

import os
import types

import torch
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, SlidingWindowSpec

from kvpipe import Completion, Offer, Status, Take


def ends(tag, status=Status.DONE, reason=0, released=True, message=""):
    return Completion(tag, None, status, reason, 0, (), released, 0, message, tag, 1)


def full(slots=16, **more):
    return FullAttentionSpec(block_size=slots, num_kv_heads=1, head_size=1, dtype=torch.float32, **more)


def window(tokens, slots=16):
    return SlidingWindowSpec(sliding_window=tokens, block_size=slots, num_kv_heads=1, head_size=1, dtype=torch.float32)


def chunks(tokens, slots=16):
    return ChunkedLocalAttentionSpec(attention_chunk_size=tokens, block_size=slots, num_kv_heads=1, head_size=1, dtype=torch.float32)


def cache(*specs, blocks=100, block=1 << 16):
    """A KV cache with a group of one layer for each of the specs. block: its bytes, in all groups."""
    groups = [types.SimpleNamespace(kv_cache_spec=spec, layer_names=[f"layer {i}"]) for i, spec in enumerate(specs or [full()])]
    return types.SimpleNamespace(kv_cache_groups=groups, num_blocks=blocks, kv_cache_tensors=[types.SimpleNamespace(size=blocks * block)])


class Session:
    """A Node whose completions are put there by the test; it keeps what is asked of it."""

    connected = True

    def __init__(self):
        self.name = "n"
        self.coming, self.said = [], []
        self.taken, self.offered, self.told = [], [], []
        self.offers = []  # how what was offered was
        self.advertise, self.refuses, self._takes = "", None, {}
        self._ready = os.eventfd(1)

    def poll(self):
        coming, self.coming = self.coming, []
        for end in coming:
            if end.terminal and end.tag in self._takes:
                self._takes[end.tag]._end = end
        return coming

    def progress(self, n):
        self.said.append(("progress", n))

    def watch(self, key, peer, token, **options):
        self.told.append(("watch", key))
        return object()

    def drop(self, key, peer, token, **options):
        self.told.append(("drop", key))
        return object()

    def offer(self, key, blocks, **options):
        self.offered.append(key)
        self.offers.append(options)
        offer = Offer.__new__(Offer)
        offer.withdraw = lambda timeout: self.said.append(("withdraw", key))
        offer.__dict__["_session"], offer._tokens = None, 0
        return offer

    def take(self, key, blocks=(), *, peer=None, **options):
        if self.refuses:
            raise self.refuses
        self.said.append(("take", peer))
        self.taken.append({"blocks": blocks, **options})
        take = Take.__new__(Take)
        take._end, take._released = None, False
        take.cancel = lambda timeout: self.said.append(("cancel", key))
        take.__dict__["_session"] = None
        self._takes[options.get("tag")] = take
        return take

    def fileno(self):
        return self._ready

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._ready)
