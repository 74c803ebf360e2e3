"""What this vLLM's attention on a CPU does with tokens, found out by having it write some."""

import types
from unittest import mock

import pytest
import torch
from sides import begun, request, scheduler
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, UniformTypeKVCacheSpecs

from kvpipe.vllm import compat, layout, packing
from kvpipe.vllm.connector import KVPipeConnector
from kvpipe.vllm.meta import Place


def config(cache_dtype="auto", mla=False, device="cpu", layers=2, heads=2):
    space = types.SimpleNamespace
    model = space(use_mla=mla, model="m", revision=None, get_total_num_hidden_layers=lambda: layers, get_total_num_kv_heads=lambda: heads)
    return space(device_config=space(device_type=device), cache_config=space(cache_dtype=cache_dtype), model_config=model)


def spec(dtype=torch.float32, block_size=32, head_size=64):
    return types.SimpleNamespace(dtype=dtype, block_size=block_size, head_size=head_size, num_kv_heads=2)


@pytest.mark.parametrize("block_size", [32, 64, 128])
@pytest.mark.parametrize("head_size", [64, 80, 128])
def test_any_token_can_be_named(block_size, head_size):
    assert packing.found(config(), [spec(block_size=block_size, head_size=head_size)]) == layout.COLUMNS


def test_layers_that_are_packed_alike_are_one_form():
    assert packing.found(config(), [spec(), spec(), spec(head_size=80)]) == layout.COLUMNS


def test_what_lies_otherwise_moves_in_whole_blocks(monkeypatch):
    """As tiles of AMX: two tokens' elements side by side."""
    def tiles(config, spec, cache, key, value, slots):
        cache.copy_(torch.cat([key, value], 2).reshape(2, 32, 2, 128).transpose(1, 2))

    monkeypatch.setattr(packing, "attention_writes", tiles)
    form = packing.found(config(), [spec()])
    assert form == compat.attention_format(config(), spec()) != layout.COLUMNS
    assert layout.in_whole_blocks(form)


def test_so_does_what_has_only_its_keys_in_columns(monkeypatch):
    def backwards(config, spec, cache, key, value, slots):
        keys, values = layout.columns(cache)
        keys.copy_(key.view(keys.shape))
        values.copy_(value.view(values.shape).flip(1))

    monkeypatch.setattr(packing, "attention_writes", backwards)
    assert layout.in_whole_blocks(packing.found(config(), [spec()]))


def test_so_do_values_that_are_larger_than_keys():
    """Columns have the one behind the other, in halves."""
    other = spec()
    other.head_size_v = 32
    assert layout.in_whole_blocks(packing.found(config(), [other]))


def test_what_cannot_be_tried_moves_in_whole_blocks(monkeypatch):
    def gone(*_):
        raise ImportError("no such function in this vLLM")

    monkeypatch.setattr(packing, "attention_writes", gone)
    assert layout.in_whole_blocks(packing.found(config(), [spec()]))


def test_latent_vectors_are_no_columns():
    assert layout.in_whole_blocks(packing.found(config(mla=True), [spec(head_size=576)]))


def test_other_devices_have_tokens_in_order():
    assert packing.found(config(device="cuda"), [spec()]) == ""


@pytest.mark.parametrize("here", [63, 16])  # layers: of the model, of one of its stages
def test_more_heads_than_a_layout_has_views_for_move_in_whole_blocks(here):
    """A view for each head's keys, and one for the values, of each layer."""
    assert packing.found(config(layers=63, heads=64), [spec()] * here) == layout.COLUMNS
    form = packing.found(config(layers=64, heads=64), [spec()] * here)
    assert form == compat.attention_format(config(), spec()) and layout.in_whole_blocks(form)


def test_layers_of_drafts_need_views_too():
    assert layout.in_whole_blocks(packing.found(config(layers=63, heads=64), [spec()] * 64))


def test_all_move_in_whole_blocks_if_some_must(monkeypatch):
    monkeypatch.setattr(packing, "in_columns", lambda config, spec: spec.head_size == 64)
    assert layout.in_whole_blocks(packing.found(config(), [spec(), spec(head_size=80)]))


@pytest.mark.parametrize("specs, sizes", [
    ([spec(), spec()], 32),
    ([spec(), spec(block_size=64), spec(block_size=64), spec()], "32+64+32"),
    ([spec(block_size=64), spec(), spec()], "64+32"),
])
def test_whole_blocks_have_one_size_on_both_sides_in_every_group(specs, sizes):
    each = [spec.block_size for spec in specs]
    assert layout.fingerprint(config(), specs, each, "cpu-vec")["block_size"] == sizes
    assert "block_size" not in layout.fingerprint(config(), specs, each, layout.COLUMNS)


def test_layers_that_differ_all_count():
    said = layout.fingerprint(config(), [spec(head_size=128), spec(), spec(head_size=128, dtype=torch.bfloat16)], [32], layout.COLUMNS)
    assert said["head_size"] == "64+128" and said["kv_dtype"] == "bfloat16+float32"


@pytest.mark.parametrize("revision, said", [(None, "none"), ("5d1a", "5d1a")])
def test_a_models_revisions_are_told_apart(revision, said):
    one = config()
    one.model_config.revision = revision
    assert layout.fingerprint(one, [spec()], [32], layout.COLUMNS)["revision"] == said


def test_the_layers_are_the_models():
    """Not those of a rank, which may be a stage of a pipeline."""
    assert layout.fingerprint(config(layers=63), [spec()] * 16, [32], layout.COLUMNS)["layers"] == 63


@pytest.mark.parametrize("speculative, more, tokens", [
    (None, {}, 0), ({}, {}, 0), ({"num_speculative_tokens": None}, {}, 0), ({"num_speculative_tokens": 0}, {"num_lookahead_tokens": 4}, 0),
    ({"num_speculative_tokens": 4}, {}, 9),  # a vLLM that does not say for how many it looks ahead
    ({"num_speculative_tokens": 4}, {"num_lookahead_tokens": 0}, 5),
    ({"num_speculative_tokens": 4}, {"num_lookahead_tokens": 3}, 8),
])
def test_room_for_drafts_is_that_of_vllms_scheduler(speculative, more, tokens):
    speculative = speculative if speculative is None else types.SimpleNamespace(**speculative)
    assert packing.drafts(types.SimpleNamespace(speculative_config=speculative, **more)) == tokens
    if speculative is None:
        assert packing.drafts(types.SimpleNamespace(**more)) == 0


def drafting(own, draft):
    """A worker's KV cache, whose only group has layers with heads of two sizes."""
    each = {name: FullAttentionSpec(block_size=32, num_kv_heads=2, head_size=size, dtype=torch.bfloat16)
            for name, size in [("model.layers.0.attn", own), ("model.layers.1.attn", own), ("draft_model.layers.0.attn", draft)]}
    return KVCacheConfig(num_blocks=8, kv_cache_tensors=[], kv_cache_groups=[
        KVCacheGroupSpec(list(each), UniformTypeKVCacheSpecs.from_specs(each))])


@pytest.mark.parametrize("own, draft, tokens", [(80, 48, 55), (64, 128, 64), (128, 80, 64), (80, 128, 64)])
def test_a_scheduler_names_no_tokens_where_a_worker_cannot(node, monkeypatch, own, draft, tokens):
    """vLLM shows it one layer of a group. Where there is AMX, heads of a multiple of 32 are in tiles, and others in columns."""
    monkeypatch.setattr(packing, "in_columns", lambda config, spec: spec.head_size % 32 != 0)
    worker = drafting(own, draft)
    side = scheduler(node, device="cpu", kv=generate_scheduler_kv_cache_config([worker]))
    side.places({(0, 0): Place("n", form=packing.found(config(), list(compat.specs_of(worker.kv_cache_groups[0]).values())))})
    begun(side, request(55))
    assert [take["tokens"] for take in node.taken] == [(0, tokens)]


@pytest.mark.parametrize("places, unit", [
    ([Place("n", form=layout.COLUMNS), Place("n", form=layout.COLUMNS)], 1),
    ([Place("n", form=layout.COLUMNS), Place("n", form="cpu-amx")], 16),
    ([Place("n", form=layout.COLUMNS), Place("n")], 16),
    ([Place("n", form=layout.COLUMNS), object()], 16),  # of another connector, in MultiConnector
    ([], 16),
])
def test_blocks_move_whole_unless_all_ranks_say_that_tokens_can_be_named(node, places, unit):
    side = scheduler(node, tp=2, device="cpu")
    side.places({(0, tp): place for tp, place in enumerate(places)})
    begun(side, request(33))
    assert [take["tokens"] for take in node.taken] == [(0, -(-33 // unit) * unit)]


def test_nothing_is_said_of_blocks_where_none_is_packed(node, monkeypatch):
    said = []
    monkeypatch.setattr(packing.logger, "info", lambda words, *_: said.append(words))
    for device in "other", "cpu":
        scheduler(node, device=device).places({})
        assert len(said) == (device == "cpu")


def test_workers_say_what_they_have_found():
    one = KVPipeConnector.__new__(KVPipeConnector)
    one._layerwise, one._worker = False, mock.Mock(place=Place("n"))
    one._worker.memory.register = lambda _: setattr(one._worker.memory, "form", "cpu-amx")
    assert one.get_handshake_metadata().form is None
    one.register_kv_caches({})
    assert one.get_handshake_metadata().form == "cpu-amx"
