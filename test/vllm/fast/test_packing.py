"""What this vLLM's attention on a CPU does with tokens, found out by having it write some."""

import types

import pytest
import torch

from kvpipe.vllm import compat, layout, packing


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


def test_the_layers_are_the_models():
    """Not those of a rank, which may be a stage of a pipeline."""
    assert layout.fingerprint(config(layers=63), [spec()] * 16, [32], layout.COLUMNS)["layers"] == 63
