"""Hand-overs between caches of different layouts, by views that are read from their tensors."""

import contextlib
import itertools
import types
import uuid

import pytest
import torch
from fakes import full, window
from kvshapes import COLUMNS, LATENTS, PACKED, SPLIT, Cache

import kvpipe
from kvpipe.vllm import layout

TOKEN = b"0123456789abcdef"


class Engine:
    """The ranks of one engine, and the scheduler that offers and takes for them."""

    def __init__(self, stack, daemon, name, shape, tp=1, **more):
        self.ranks = [stack.enter_context(Cache(daemon.socket, name, shape, tp=tp, rank=i, **more)) for i in range(tp)]
        self.node = stack.enter_context(kvpipe.connect(daemon.socket, engine_id=name, role="scheduler"))

    def fill(self, seed):
        for rank in self.ranks:
            rank.fill(seed)


@pytest.fixture
def engines(near, far):
    """engines(shape, shape, of both, p=of the first, d=of the second): a producer here, a consumer on another node."""
    with contextlib.ExitStack() as stack:
        yield lambda source, target, p=None, d=None, **both: (
            Engine(stack, near, "p", source, **both, **p or {}), Engine(stack, far, "d", target, **both, **d or {}))


def hand_over(p, d, there, here, tokens, skip=0, seed=1):
    """Offers the blocks ``there``, takes tokens ``skip`` to ``tokens`` into the blocks ``here``, and looks at all memory."""
    p.fill(seed)
    key = uuid.uuid4().hex
    wanted = [expected(rank, p.ranks[0], seed, there, here, tokens, skip) for rank in d.ranks]
    offer = p.node.offer(key, there, tokens=tokens, token=TOKEN)
    try:
        d.node.take(key, here, peer=p.node.advertise, token=TOKEN, tokens=(skip, tokens)).wait(30)
        offer.wait(30)
    finally:
        offer.withdraw()
    assert all(torch.equal(rank.memory, memory) for rank, memory in zip(d.ranks, wanted))


def expected(rank, source, seed, there, here, tokens, skip):
    """What must lie in a rank's memory: the tokens' elements, and around them what was there."""
    memory = rank.memory.clone()
    there, here = (blocks if isinstance(blocks[0], list) else [blocks] for blocks in (there, here))
    for (group, into), numbers in zip(rank.parts, source.model(seed)):
        view = memory.view(into.dtype).as_strided(into.shape, into.stride(), into.storage_offset())
        of = rank.mine(numbers)
        for token in range(skip, tokens):
            block = here[group][token // rank.slots - skip // rank.slots]
            if block != kvpipe.NO_BLOCK:
                view[block, token % rank.slots] = of[there[group][token // source.slots], token % source.slots]
    return memory


@pytest.mark.parametrize("source, target", [(a, b) for kind in (PACKED, SPLIT, COLUMNS, LATENTS) for a in kind for b in kind])
def test_any_layout_to_any_of_its_kind(engines, source, target):
    """The last block is not full."""
    hand_over(*engines(source, target), [7, 2, 3, 11], [0, 9, 10, 4], 55)


@pytest.mark.parametrize("source, target", [("packed HND", "packed NHD"), ("cross-layer NHD", "padded"),
                                            ("K/V first", "K/V second"), ("columns", "columns"), ("MLA", "MLA padded")])
@pytest.mark.parametrize("slots", [(16, 32), (32, 16), (32, 32)])
def test_block_sizes_and_a_local_prefix(engines, source, target, slots):
    """The first 32 tokens are there already."""
    p, d = engines(source, target, p={"slots": slots[0]}, d={"slots": slots[1]})
    there, here = [5, 1, 2, 8, 10][:-(-75 // slots[0])], [3, 11, 6][:-(-43 // slots[1])]
    hand_over(p, d, there, here, 75, skip=32)


@pytest.mark.parametrize("source, target", [("packed HND", "packed HND"), ("packed NHD", "cross-layer HND"),
                                            ("K/V second", "K/V first"), ("columns", "columns"), ("MLA", "MLA padded")])
@pytest.mark.parametrize("tp", [(1, 2), (2, 1), (4, 2), (1, 4), (2, 8), (8, 2)], ids=lambda n: f"tp{n[0]}-tp{n[1]}")
def test_ranks(engines, source, target, tp):
    """Four kv heads over other numbers of ranks; more ranks than heads have copies, and with MLA all have."""
    hand_over(*engines(source, target, p={"tp": tp[0]}, d={"tp": tp[1]}), [4, 5], [6, 1], 32)


@pytest.mark.parametrize("shape", ["packed HND", "columns"])
def test_an_offer_that_grows_in_the_middle_of_a_block(engines, shape):
    """As the chunks of a prefill do."""
    p, d = engines(shape, shape, d={"slots": 32})
    p.fill(1)
    wanted = expected(d.ranks[0], p.ranks[0], 1, [7, 2, 3, 11], [6, 1], 55, 0)
    offer = p.node.offer(uuid.uuid4().hex, [7, 2], tokens=21, token=TOKEN, sealed=False)
    take = d.node.take(offer.key, [6, 1], peer=p.node.advertise, token=TOKEN, tokens=55)
    offer.extend([2, 3], 37)
    offer.extend([3, 11], 55, sealed=True)
    take.wait(30)
    offer.wait(30)
    assert torch.equal(d.ranks[0].memory, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8], ids=str)
def test_types(engines, dtype):
    hand_over(*engines("packed NHD", "packed HND", dtype=dtype), [1, 2], [2, 1], 32)


def test_a_sliding_window(engines):
    """Two groups over the same bytes, whose block ids never meet; one has blocks of its last tokens only."""
    p, d = engines("packed HND", "packed NHD", layers=4, group=lambda layer: layer % 2)
    none = kvpipe.NO_BLOCK
    hand_over(p, d, [[0, 1, 2, 3], [none, none, 6, 7]], [[8, 9, 10, 11], [none, none, 5, 4]], 60)


@pytest.mark.parametrize("source, target", [(PACKED[0], SPLIT[0]), (SPLIT[1], PACKED[1]), (PACKED[0], LATENTS[0]),
                                            (PACKED[0], COLUMNS[0])])
def test_layouts_of_different_kinds_are_refused(engines, source, target):
    p, d = engines(source, target)
    before = d.ranks[0].memory.clone()
    offer = p.node.offer(uuid.uuid4().hex, [1], tokens=16, token=TOKEN)
    with pytest.raises(kvpipe.Incompatible):
        d.node.take(offer.key, [1], peer=p.node.advertise, token=TOKEN, tokens=16).wait(30)
    assert torch.equal(d.ranks[0].memory, before)


@pytest.mark.parametrize("shape", ["packed HND", "columns"])
@pytest.mark.parametrize("drafts", [{}, {"drafts": 2}], ids=["prefill", "both sides"])
def test_layers_of_a_draft_model_are_not_taken_for_those_of_the_model(engines, shape, drafts):
    """They may look like them, and have the numbers of others that draft."""
    hand_over(*engines(shape, shape, p={"drafts": 2}, d=drafts), [7, 2, 3, 11], [0, 9, 10, 4], 55)


@pytest.mark.parametrize("more, layer", [({"drafts": 2}, 'layer 3 part "draft"'), ({"layers": 4}, 'layer 3 part "kv"')],
                         ids=["a draft model", "layers behind the model's"])
def test_the_kv_of_drafts_is_not_to_be_had_of_an_engine_without(engines, more, layer):
    p, d = engines("packed HND", "packed HND", d=more)
    offer = p.node.offer(uuid.uuid4().hex, [1], tokens=16, token=TOKEN)
    with pytest.raises(kvpipe.Incompatible, match=f"{layer} in group 0, which no producer rank holds"):
        d.node.take(offer.key, [1], peer=p.node.advertise, token=TOKEN, tokens=16).wait(30)


@pytest.mark.parametrize("tp", [(1, 1), (1, 2), (4, 2)], ids=lambda n: f"tp{n[0]}-tp{n[1]}")
def test_whole_blocks_hold_columns_too(engines, tp):
    p, d = engines("columns", "columns", p={"tp": tp[0]}, d={"tp": tp[1]}, whole=True)
    assert len(d.ranks[0].views) == len(d.ranks[0].parts) / 2, "one for each layer"
    hand_over(p, d, [7, 2, 3, 11], [0, 9, 10, 4], 64)


def test_a_layout_has_room_for_so_many_views(near):
    with kvpipe.connect(near.socket, engine_id="many") as node:
        region = node.alloc(1 << 20)
        views = [kvpipe.View(region, 128 * i, layer=i, part="kv", num_blocks=1, block_stride=128, block_size=1, heads=1, total_heads=1,
                             strides=(128, 128), content_bytes=128) for i in range(layout.MAX_VIEWS + 1)]
        with pytest.raises(kvpipe.Invalid, match="views"):
            node.set_layout(views, {"model": "tiny"})
        node.set_layout(views[:-1], {"model": "tiny"})


def test_every_head_has_a_rank():
    """As vLLM spreads kv heads: whole parts, or copies where there are more ranks."""
    for heads, ranks in itertools.product([1, 2, 3, 4, 8, 12], [1, 2, 3, 4, 6, 8, 16, 24]):
        if heads % ranks == 0 or ranks % heads == 0:
            mine = max(heads // ranks, 1)
            got = [layout.share(mine, layout.Layer("", 0, 0, 16, mine, heads), layout.Heads(i, ranks)) for i in range(ranks)]
            assert got == [(i * heads // ranks, heads) for i in range(ranks)], (heads, ranks)


def model(mla=False, **more):
    return types.SimpleNamespace(use_mla=mla, get_total_num_kv_heads=lambda: 4, **more)


MIMO = model(hf_text_config=types.SimpleNamespace(swa_num_key_value_heads=8))
VARIED = model(model_arch_config=types.SimpleNamespace(per_layer_overrides=[{}, {"total_num_kv_heads": 2}]))


@pytest.mark.parametrize("model, number, spec, total", [
    (model(), 0, window(40), 4), (model(mla=True), 0, full(), 1),
    (VARIED, 0, full(), 4), (VARIED, 1, full(), 2),
    (VARIED, 2, full(), 4),  # of MTP
    (MIMO, 0, full(), 4), (MIMO, 1, window(40), 8), (MIMO, 1, full(sliding_window=40), 8),
])
def test_layers_may_have_other_numbers_of_heads_than_the_model(model, number, spec, total):
    assert layout.kv_heads(model, number, spec) == total


def one(tensor, blocks=4, slots=16, packed=False):
    known = [layout.Layer("model.layers.0.attn", 0, 0, slots, 4, 4)]
    return layout.views(known, {known[0].name: tensor}, blocks, layout.Heads(0, 1), lambda t: (None, 0), packed)


@pytest.mark.parametrize("tensor, words", [
    (torch.empty(4, 4, 8, 16), "blocks of 8 tokens, the cache 4 of 16.*--block-size 8"),
    (torch.empty(8, 4, 16, 16), "has 8 blocks"),
    (torch.empty(4, 4, 16, 16).transpose(1, 3).contiguous().transpose(1, 3), "do not lie together"),
    (torch.empty(4, 4, 16, 2, 2, 2), "not known to this release"),
    (torch.empty(4, 2, 16, 4, 2, 2), "not known to this release"),
    (torch.empty(2, 4, 16, 4, 2, 2), "not known to this release"),
    (torch.empty(4, 64), "not known to this release"),
])
def test_tensors_that_cannot_be_handed_over(tensor, words):
    with pytest.raises(kvpipe.Incompatible, match=words):
        one(tensor)


@pytest.mark.parametrize("tensor", [torch.empty(4, 4, 16, 32)[..., :16], torch.empty(4, 16, 16)])
def test_columns_in_tensors_that_have_none(tensor):
    with pytest.raises(kvpipe.Incompatible, match="does not lie together"):
        one(tensor, packed=True)
