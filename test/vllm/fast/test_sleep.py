"""An engine that sleeps: vLLM says so to each worker, after it has drained what was handed over and reset its cache."""

import mmap
import threading
import types

import pytest
import torch

import kvpipe
from kvpipe.vllm.connector import KVPipeConnector
from kvpipe.vllm.layout import Heads
from kvpipe.vllm.memory import Memory
from kvpipe.vllm.params import Settings

BLOCK, BLOCKS = 1 << 16, 16
TOKEN = b"0123456789abcdef"


class Rank:
    """A worker with its KV memory, of one layer, and the connector by which vLLM tells it."""

    def __init__(self, daemon, name):
        self.node = kvpipe.connect(daemon.socket, engine_id=name, rank=(0, 0), world=(1, 1))
        cache = types.SimpleNamespace(kv_cache_tensors=[types.SimpleNamespace(size=BLOCK * BLOCKS)])
        memory = Memory(self.node, None, cache, Settings(), Heads(0, 1))
        with memory.allocating():
            self.kv = torch.zeros(BLOCK * BLOCKS, dtype=torch.int8).view(BLOCKS, BLOCK)
        region, = memory._regions
        self.node.set_layout([kvpipe.View(region, 0, layer=0, num_blocks=BLOCKS, block_stride=BLOCK, block_size=1, heads=1, total_heads=1,
                                          strides=(BLOCK, BLOCK), content_bytes=BLOCK)], fingerprint={})
        self.connector = KVPipeConnector.__new__(KVPipeConnector)
        self.connector._worker = types.SimpleNamespace(memory=memory)

    def offer(self, key):
        return self.node.offer(key, [1, 2], tokens=2, token=TOKEN)


@pytest.fixture
def ranks(near):
    p, d = Rank(near, "p"), Rank(near, "d")
    with p.node, d.node:
        yield p, d


def handed_over(p, d, key, value):
    p.kv[1:3].fill_(value)
    d.kv[1:3].fill_(value + 1)
    offer = p.offer(key)
    d.node.take(key, [1, 2], token=TOKEN, tokens=2).wait(30)
    offer.wait(30)
    return bool((d.kv[1:3] == value).all())


def test_only_the_engines_one_allocation_is_the_daemons(ranks):
    """Of that size and type, by that thread, while it is made."""
    p, _ = ranks
    memory, of_torch, size = p.connector._worker.memory, torch.zeros, BLOCK * BLOCKS
    with pytest.raises(MemoryError), memory.allocating():
        for elsewhere in (torch.zeros(size), torch.zeros(size, 1, dtype=torch.int8), torch.zeros(size - 1, dtype=torch.int8)):
            assert not elsewhere.any()
        other = threading.Thread(target=lambda: torch.zeros(size, dtype=torch.int8))
        other.start()
        other.join()
        raise MemoryError
    assert torch.zeros is of_torch
    assert len(memory._regions) == 1


@pytest.mark.parametrize("address, region, offset", [(4096, 0, 0), (8191, 0, 4095), (8192, 1, 0), (12287, 1, 4095)])
def test_a_tensor_is_where_it_begins(ranks, address, region, offset):
    memory = ranks[0].connector._worker.memory
    memory._regions = [types.SimpleNamespace(address=at, nbytes=4096) for at in (4096, 8192)]
    assert memory._place(types.SimpleNamespace(data_ptr=lambda: address)) == (memory._regions[region], offset)


def test_memory_that_is_the_engines_own_is_adopted_once(ranks):
    by_itself = mmap.mmap(-1, 4 * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory, own = ranks[0].connector._worker.memory, torch.frombuffer(by_itself, dtype=torch.int8)
    places = [memory._place(own[i * BLOCK:(i + 1) * BLOCK]) for i in (2, 0, 3)]
    assert len(memory._regions) == 2 and all(region is memory._regions[1] for region, _ in places)
    assert [region.address + offset - own.data_ptr() for region, offset in places] == [2 * BLOCK, 0, 3 * BLOCK]


def test_kv_memory_goes_and_comes_back_where_it_was(ranks):
    p, d = ranks
    assert handed_over(p, d, "before", 3)
    left = p.offer("left over")
    for _ in range(2):  # each may be told twice
        p.connector.unregister_kv_caches()
    with pytest.raises(kvpipe.Error):
        left.wait(30)
    assert left.released, "nothing reads the memory any more"
    with pytest.raises(kvpipe.Unavailable, match="revalidate"):
        p.offer("asleep").wait(30)
    for _ in range(2):
        p.connector.restore_kv_caches()
    assert handed_over(p, d, "after", 5)


def test_all_memory_comes_back_though_the_daemon_is_away(ranks, monkeypatch):
    p, _ = ranks
    memory, told = p.connector._worker.memory, []

    def away(region):
        told.append(region)
        raise kvpipe.Unavailable("no daemon; the region is valid here, and comes back with it")

    memory._regions += memory._regions
    monkeypatch.setattr(kvpipe.Region, "revalidate", away)
    p.connector.restore_kv_caches()
    assert len(told) == 2
    with pytest.raises(kvpipe.Unavailable, match="comes back with it"):
        memory.wake()


def test_an_engine_does_not_sleep_while_the_daemon_may_use_its_memory(ranks, monkeypatch):
    def late(*_):
        raise kvpipe.Timeout("region 1 is still read")

    p, _ = ranks
    monkeypatch.setattr(kvpipe.Region, "invalidate", late)
    with pytest.raises(RuntimeError, match="^kvpipe: region 1 is still read"):
        p.connector.unregister_kv_caches()
