"""Instances that differ: in tensor and pipeline parallelism, in block size, in what they have already, in the model."""

import pytest

from harness.able import runs
from harness.fleet import BRIEF, SETTINGS
from harness.handover import decode, equal, handover, prefill, prompt, tokens
from harness.wait import becomes

TWO = ("--tensor-parallel-size", "2")
LENGTHS = (33, 64, 100, 300, 700)


@pytest.fixture
def start(fleet):
    """Starts instances of this test's own, which end with it: memory is for few at a time."""
    names = []

    def start(name, *args, **options):
        names.append(name)
        return fleet.start(name, *args, **options)

    yield start
    fleet.settled()
    for name in names:
        fleet.end(name)


def same(p, d, reference, seed, lengths=LENGTHS):
    for n in lengths:
        ids = prompt(n, seed)
        answer = handover(p, d, ids)
        equal(tokens(answer), tokens(reference.completion(ids)), f"{n} tokens")
        assert d.computed(answer["id"])[0] == 1, f"{n} tokens: computed by D"


@pytest.mark.core
def test_two_tensor_parallel_ranks_to_one(start, d, reference):
    p = start("prefill-tp2", "node-a", more=TWO).ready()
    same(p, d, reference, "tp2 to tp1")


@pytest.mark.core
def test_one_rank_to_two_tensor_parallel_ones(start, p, reference):
    d = start("decode-tp2", "node-b", more=TWO).ready()
    same(p, d, reference, "tp1 to tp2")


def test_two_to_two(start, reference):
    p, d = (start(f"{role}-tp2", node, more=TWO) for role, node in (("prefill", "node-a"), ("decode", "node-b")))
    same(p.ready(), d.ready(), reference, "tp2 to tp2")


STAGES = ("--pipeline-parallel-size", "2")


def test_two_pipeline_stages_to_one(start, d, reference):
    runs(start, "two pipeline stages", more=STAGES)
    p = start("prefill-pp2", "node-a", more=STAGES).ready()
    same(p, d, reference, "pp2 to pp1")


def test_one_to_two_pipeline_stages(start, p, reference):
    runs(start, "two pipeline stages", more=STAGES)
    d = start("decode-pp2", "node-b", more=STAGES).ready()
    same(p, d, reference, "pp1 to pp2")


def other_blocks(p, d, reference, seed):
    """Also where the last block of one is not full, and where D has the beginning already."""
    same(p, d, reference, seed)
    begin = prompt(128, f"{seed}, has already")
    decode(d, begin, None)
    ids = begin + prompt(90, f"{seed}, the rest")
    answer = handover(p, d, ids)
    equal(tokens(answer), tokens(reference.completion(ids)))
    assert d.computed(answer["id"])[0] == 1


@pytest.mark.core
def test_small_blocks_to_large_ones(start, p, reference):
    """The CPU's attention keeps the keys of a block transposed."""
    other_blocks(p, start("decode-block64", "node-b", block=64).ready(), reference, "32 to 64")


@pytest.mark.core
def test_large_blocks_to_small_ones(start, d, reference):
    other_blocks(start("prefill-block64", "node-a", block=64).ready(), d, reference, "64 to 32")


@pytest.mark.core
def test_what_d_has_already_is_not_loaded(p, d, reference):
    begin = prompt(256, "has already")
    decode(d, begin, None)  # D computes it, and keeps it in its prefix cache
    loaded = d.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")
    ids = begin + prompt(200, "the rest")
    answer = handover(p, d, ids)
    equal(tokens(answer), tokens(reference.completion(ids)))
    assert d.computed(answer["id"])[0] == 1
    assert d.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") - loaded in (199, 200)


@pytest.mark.core
def test_what_d_has_wholly_is_released_at_p(fleet, p, d, reference):
    """Nothing is left to load: P's blocks are free at once, not when their lease ends."""
    ids = prompt(257, "wholly")
    decode(d, ids[:256] + prompt(1, "other"), None)
    answer = handover(p, d, ids)
    becomes(lambda: fleet.nodes["node-a"].ask("offers") or [], [], timeout=SETTINGS["lease"] / 2)
    equal(tokens(answer), tokens(reference.completion(ids)))


@pytest.mark.core
def test_speculative_decoding_by_ngrams(start, reference):
    speculative = ("--speculative-config",
                   '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":3,"prompt_lookup_min":1}')
    p, d = (start(f"{role}-ngram", node, more=speculative)
            for role, node in (("prefill", "node-a"), ("decode", "node-b")))
    p.ready(), d.ready()
    for n in (40, 100, 300):
        ids = prompt(n, "ngram") * 2  # what it looks up is there
        answer = handover(p, d, ids, max_tokens=40)
        equal(tokens(answer), tokens(reference.completion(ids, max_tokens=40)))
    assert d.metric("vllm:spec_decode_num_draft_tokens_total") > 0


def other_model(start, model, lengths, *more):
    reference = start(f"reference-{model}", model=model, more=more)
    p, d = (start(f"{role}-{model}", node, model=model, more=more)
            for role, node in (("prefill", "node-a"), ("decode", "node-b")))
    for instance in (reference, p, d):
        instance.ready()
    ids = prompt(20, model)
    once = tokens(reference.completion(ids))
    again = tokens(reference.completion(ids + once[:8]))[:8]
    assert again == once[8:], f"vLLM itself computes {model} otherwise in one step than token by token"
    same(p, d, reference, model, lengths)
    return p, d, reference


@pytest.mark.core
def test_a_hybrid_model_with_sliding_windows(start):
    """Three groups of layers in one pool; blocks that have left the window are gone at P."""
    p, d, reference = other_model(start, "gemma3", (20, 64, 100, 300, 700))
    for n in (95, 127, 255):  # the last token, which D computes again, looks at a block that is gone: D computes all of it
        ids = prompt(n, "gemma3")
        answer = handover(p, d, ids, logprobs=0)
        equal(tokens(answer), tokens(reference.completion(ids)))
        expected = reference.completion(ids, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"]
        equal(answer["choices"][0]["logprobs"]["token_logprobs"], pytest.approx(expected, abs=1e-3), f"{n} tokens")
        assert d.computed(answer["id"])[0] == n


def test_latent_attention(start):
    """vLLM's CPU backend computes it without prefix caching and chunked prefill, and computes on what was loaded all the same."""
    runs(start, "latent attention", model="deepseek2")
    p, d, reference = other_model(start, "deepseek2", (20, 64, 100, 300))
    ids = prompt(100, "latent attention, first turn")
    first = d.completion(ids, kv_transfer_params={"kvpipe": {"v": 1, "keep": 40}})
    second = ids + tokens(first) + prompt(40, "latent attention, second turn")
    answer = p.completion(second, kv_transfer_params={**first["kv_transfer_params"], "do_remote_decode": False, "do_remote_prefill": True})
    equal(tokens(answer), tokens(reference.completion(second)))
    assert p.computed(answer["id"])[0] == 41, "all but the last token of D's answer has KV"


def test_prefill_without_asking_for_more_keeps_nothing(p):
    """An ordinary request at an instance with a connector."""
    answer = p.completion(prompt(100, "ordinary"))
    assert answer["kv_transfer_params"] is None


def test_the_same_offer_is_taken_by_two(fleet, p, d, reference):
    other = fleet.start("decode-brief", "node-b", BRIEF).ready()
    ids = prompt(150, "twice")
    params = prefill(p, ids)
    expected = tokens(reference.completion(ids))
    equal(tokens(decode(d, ids, params)), expected)
    equal(tokens(decode(other, ids, params)), expected)  # computed again, when P has let go of it
