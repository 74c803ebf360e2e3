"""What this vLLM's attention on a CPU does with tokens, found out by having it write some."""

import types

import pytest
import torch

from kvpipe.vllm import compat, layout, packing


def config(cache_dtype="auto", mla=False, device="cpu"):
    space = types.SimpleNamespace
    return space(device_config=space(device_type=device), cache_config=space(cache_dtype=cache_dtype), model_config=space(use_mla=mla))


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
