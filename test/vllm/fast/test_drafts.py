"""Layers of models that draft, beside those of the model that is served: from vLLM's names and configs to what is handed over."""

import contextlib
import itertools
import types
import uuid

import pytest
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec

import kvpipe
from kvpipe.vllm.layout import Heads
from kvpipe.vllm.meta import Step, start_of
from kvpipe.vllm.params import Settings
from kvpipe.vllm.worker import Worker

TOKEN = b"0123456789abcdef"
BLOCKS, SLOTS, HEADS, LAYERS = 6, 16, 4, 3
OWN = [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]
DRAFTS = [f"draft_model.model.layers.{i}.self_attn.attn" for i in range(2)]
EAGLE = ["model.layers.3.self_attn.attn"]


def model(layers, heads):
    return types.SimpleNamespace(model="tiny", revision=None, use_mla=False, get_total_num_hidden_layers=lambda: layers,
                                 get_total_num_kv_heads=lambda: heads)


class Rank:
    """A worker with the tensors of its layers. ``kv``: name -> [block, head, token, K and V]."""

    def __init__(self, daemon, name, drafts, heads, size, dtype, tp, rank):
        self.node = kvpipe.connect(daemon.socket, engine_id=name, rank=(rank, 0), world=(tp, 1))
        shapes = {**{layer: (HEADS, 8, torch.float32) for layer in OWN}, **{layer: (heads, size, dtype) for layer in drafts}}
        each = {layer: FullAttentionSpec(block_size=SLOTS, num_kv_heads=max(n // tp, 1), head_size=size, dtype=dtype)
                for layer, (n, size, dtype) in shapes.items()}
        sizes = {layer: BLOCKS * spec.page_size_bytes for layer, spec in each.items()}
        group = types.SimpleNamespace(kv_cache_spec=types.SimpleNamespace(kv_cache_specs=each), layer_names=list(each))
        cache = types.SimpleNamespace(kv_cache_groups=[group], num_blocks=BLOCKS,
                                      kv_cache_tensors=[types.SimpleNamespace(size=sum(sizes.values()))])
        config = types.SimpleNamespace(
            model_config=model(LAYERS, HEADS), device_config=types.SimpleNamespace(device_type="cuda"),
            cache_config=types.SimpleNamespace(cache_dtype="auto"),
            speculative_config=types.SimpleNamespace(draft_model_config=model(len(drafts), heads)) if drafts else None)
        self.worker = Worker(self.node, config, cache, Settings(layerwise=True), Heads(rank, tp))
        with self.worker.memory.allocating():
            memory = torch.zeros(sum(sizes.values()), dtype=torch.int8)
        self.kv = {layer: part.view(each[layer].dtype).view(BLOCKS, -1, SLOTS, 2 * each[layer].head_size)
                   for layer, part in zip(each, memory.split(list(sizes.values())))}
        self.worker.memory.register(self.kv)
        self._mine = {layer: [rank * n // tp + i for i in range(max(n // tp, 1))] for layer, (n, *_) in shapes.items()}
        self._shapes = {layer: (BLOCKS, n, SLOTS, 2 * size) for layer, (n, size, _) in shapes.items()}

    def numbers(self, layer):
        """What a layer's KV is, of this rank's heads."""
        every = torch.randn(self._shapes[layer], generator=torch.Generator().manual_seed(list(self.kv).index(layer)))
        return every[:, self._mine[layer]].to(self.kv[layer].dtype)

    def write(self, layers):
        for layer in layers:
            self.kv[layer].copy_(self.numbers(layer))

    def has(self, layer, blocks):
        return torch.equal(self.kv[layer][blocks], self.numbers(layer)[blocks])


class Engine:
    """Ranks, and the scheduler that offers and takes for them."""

    def __init__(self, stack, daemon, name, drafts=(), heads=HEADS, size=8, dtype=torch.float32, tp=1):
        self.ranks = [Rank(daemon, name, drafts, heads, size, dtype, tp, i) for i in range(tp)]
        for rank in self.ranks:
            stack.enter_context(rank.node)
        self.node = stack.enter_context(kvpipe.connect(daemon.socket, engine_id=name, role="scheduler"))


@pytest.fixture
def engine():
    with contextlib.ExitStack() as stack:
        yield lambda daemon, name, *args, **more: Engine(stack, daemon, name, *args, **more)


def test_with_layerwise_they_go_once_they_are_written(engine, near, far):
    """The model that drafts runs after all of the other."""
    p, d = engine(near, "p", DRAFTS), engine(far, "d", DRAFTS)
    producer, consumer = p.ranks[0], d.ranks[0]
    producer.worker.begin(Step(1, offered=True))
    offer = p.node.offer(uuid.uuid4().hex, [], tokens=0, token=TOKEN, sealed=False)
    offer.extend([1, 2], 32, start_of(1), layered=True, sealed=True)
    take = d.node.take(offer.key, [1, 2], peer=p.node.advertise, token=TOKEN, tokens=32, layered=True)
    for layer in OWN:
        producer.write([layer])
        producer.worker.layer_saved(layer)
        take.wait_layer(consumer.worker.memory.layers[layer], 30)
        assert consumer.has(layer, [1, 2])
    producer.write(DRAFTS)
    producer.worker.saved()
    take.wait(30)
    offer.wait(30)
    assert all(consumer.has(layer, [1, 2]) for layer in OWN + DRAFTS)


def hand_over(p, d, layers):
    for rank in p.ranks:
        rank.write(rank.kv)
    offer = p.node.offer(uuid.uuid4().hex, [4, 1], tokens=32, token=TOKEN)
    d.node.take(offer.key, [4, 1], peer=p.node.advertise, token=TOKEN, tokens=32).wait(30)
    offer.wait(30)
    assert all(rank.has(layer, [4, 1]) for rank, layer in itertools.product(d.ranks, layers))


@pytest.mark.parametrize("drafts", [DRAFTS, EAGLE], ids=["draft model", "EAGLE"])
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("tp", [(1, 4), (4, 1), (2, 8), (8, 16)], ids=lambda n: f"tp{n[0]}-tp{n[1]}")
def test_they_have_kv_heads_of_their_own(engine, near, far, drafts, heads, tp):
    """The model has four."""
    p, d = (engine(at, name, drafts, heads, tp=n) for at, name, n in zip((near, far), "pd", tp))
    hand_over(p, d, OWN + drafts)


def test_layers_behind_the_models_have_its_heads_where_no_model_drafts(engine, near, far, monkeypatch):
    monkeypatch.setattr("kvpipe.vllm.memory.draft_config", lambda config: None)
    hand_over(engine(near, "p", EAGLE), engine(far, "d", EAGLE, tp=2), OWN + EAGLE)


@pytest.mark.parametrize("drafts", [DRAFTS, EAGLE], ids=["draft model", "EAGLE"])
@pytest.mark.parametrize("more", [{"size": 16}, {"dtype": torch.float16}], ids=["head size", "type"])
def test_prefill_may_have_them_alone_whatever_they_are_like(engine, near, far, drafts, more):
    hand_over(engine(near, "p", drafts, **more), engine(far, "d"), OWN)


@pytest.mark.parametrize("more", [{"size": 16}, {"dtype": torch.float16}], ids=["head size", "type"])
def test_drafts_that_are_not_alike_are_not_exchanged(engine, near, far, more):
    p, d = engine(near, "p", DRAFTS, **more), engine(far, "d", DRAFTS)
    with pytest.raises(kvpipe.Incompatible, match='layer 3 part "draft".*content_bytes'):
        hand_over(p, d, OWN)
