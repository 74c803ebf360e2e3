"""From tensors to views: strides are read, heads are shared out."""

import pytest

import kvpipe
from kvpipe.vllm.layout import Heads, Layer, describe, model_name, parts, share


class Strided:
    """As much of a tensor as a layout is read from."""

    def __init__(self, shape, strides=None, offset=0, item=2):
        if strides is None:
            strides, n = [], 1
            for size in reversed(shape):
                strides.insert(0, n)
                n *= size
        self.shape, self._strides, self._offset, self._item = tuple(shape), tuple(strides), offset, item

    def dim(self):
        return len(self.shape)

    def stride(self, i):
        return self._strides[i]

    def storage_offset(self):
        return self._offset

    def element_size(self):
        return self._item

    def permute(self, *order):
        return Strided([self.shape[i] for i in order], [self._strides[i] for i in order], self._offset, self._item)

    def transpose(self, a, b):
        order = list(range(self.dim()))
        order[a], order[b] = b, a
        return self.permute(*order)

    def unsqueeze(self, at):
        return Strided(self.shape[:at] + (1,) + self.shape[at:], self._strides[:at] + (0,) + self._strides[at:], self._offset, self._item)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        shape, strides, offset = [], [], self._offset
        for i, size in enumerate(self.shape):
            pick = index[i] if i < len(index) else slice(None)
            if isinstance(pick, int):
                offset += pick * self._strides[i]
            else:
                shape.append(size)
                strides.append(self._strides[i])
        return Strided(shape, strides, offset, self._item)


class Region:
    id = 5


LAYER = Layer("model.layers.3.self_attn.attn", 3, 0, 16, 2, 2)
HEADS = Heads(0, 1)


def views(tensor, layer=LAYER, heads=HEADS, base=0):
    return describe(layer, tensor, 10, heads, (Region, base))


def test_head_after_head():
    view, = views(Strided((10, 2, 16, 128)), base=4096)
    assert (view.part, view.base, view.block_stride, view.strides, view.content_bytes) == (
        "kv", 4096, 2 * 16 * 128 * 2, (256, 16 * 256), 256)
    assert (view.layer, view.block_size, view.num_blocks, view.heads, view.total_heads) == (3, 16, 10, 2, 2)


def test_token_after_token():
    view, = views(Strided((10, 16, 2, 128)).permute(0, 2, 1, 3))
    assert view.strides == (2 * 256, 256)


def test_all_layers_in_one_block():
    packed = Strided((10, 4, 2, 16, 128))[:, 1]
    view, = views(packed)
    assert view.block_stride == 4 * 2 * 16 * 256


def test_k_and_v_apart():
    k, v = views(Strided((2, 10, 16, 2, 64)))
    assert (k.part, v.part, v.base - k.base) == ("k", "v", 10 * 16 * 2 * 64 * 2)
    k, v = views(Strided((10, 2, 16, 2, 64)))
    assert (v.base - k.base, k.block_stride) == (16 * 2 * 64 * 2, 2 * 16 * 2 * 64 * 2)


def test_latent_attention_has_one_head():
    view, = views(Strided((10, 16, 576)), LAYER._replace(kv_heads=1), Heads(3, 4))
    assert (view.first_head, view.heads, view.total_heads, view.content_bytes) == (0, 1, 1, 1152)


def test_blocks_of_the_kernel_must_be_those_of_the_cache():
    with pytest.raises(kvpipe.Incompatible, match="^layer .*--block-size 8"):
        views(Strided((20, 2, 8, 128)))


def test_a_token_lies_together():
    with pytest.raises(kvpipe.Incompatible, match="stride 3"):
        views(Strided((10, 2, 16, 128), (12288, 6144, 384, 3)))


def test_other_shapes_are_named():
    with pytest.raises(kvpipe.Incompatible, match=r"\(10, 16\)"):
        views(Strided((10, 16)))


@pytest.mark.parametrize("slots, kv_heads, total, heads, expected", [
    (2, 2, 2, Heads(0, 1), (0, 2)),
    (1, 1, 2, Heads(1, 2), (1, 2)),
    (1, 1, 2, Heads(3, 4), (1, 2)),    # four ranks, two heads: two ranks hold each
    (1, 1, 1, Heads(7, 8), (0, 1)),
    (4, 2, 4, Heads(1, 2), (4, 8)),    # two slots for a head
    (3, 3, 2, Heads(1, 2), (3, 6)),    # layers with more heads than the model says
    (4, 4, 4, Heads(1, 2), (4, 8)),
    (2, 2, 4, Heads(3, 4), (6, 8)),
    (1, 1, 4, Heads(5, 6), (5, 6)),    # six ranks cannot all hold as many copies of four heads
])
def test_heads_are_shared_out(slots, kv_heads, total, heads, expected):
    assert share(slots, LAYER._replace(kv_heads=kv_heads, total=total), heads) == expected


@pytest.mark.parametrize("total, mine, first", [(8, 1, 5), (4, 1, 2), (2, 1, 1), (16, 2, 10)])
def test_heads_are_shared_out_by_the_layers_own_number(total, mine, first):
    """There are eight ranks."""
    layer = LAYER._replace(kv_heads=mine, total=total)
    view, = describe(layer, Strided((20, mine, 16, 128)), 20, Heads(5, 8), (Region(), 0))
    assert (view.first_head, view.heads, view.total_heads) == (first, mine, total)


def test_tensors_of_one_layer_have_parts():
    layers = [LAYER, LAYER._replace(name="model.layers.3.self_attn.indexer"), LAYER._replace(name="model.layers.4.attn", number=4)]
    assert parts(layers) == {layers[0].name: "kv", layers[1].name: "kv1", layers[2].name: "kv"}


@pytest.mark.parametrize("model, name", [
    ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
    ("/models/Llama-3.1-8B/", "Llama-3.1-8B"),
    ("/data/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f", "Llama-3.1-8B"),
])
def test_models_are_called_alike(model, name):
    assert model_name(model) == name
    assert model_name(model, "other") == "other"
