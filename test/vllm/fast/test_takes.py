"""What the scheduler's side asks for when a request gets its blocks: which tokens, of whom, in how many parts."""

import base64
import types

import pytest
from fakes import Session

from kvpipe.vllm.meta import Place
from kvpipe.vllm.params import Settings
from kvpipe.vllm.scheduler import Scheduler

SLOTS = 16
TOKEN = b"0123456789abcdef"


@pytest.fixture
def node():
    with Session() as session:
        yield session


def scheduler(node, tp=1, **settings):
    """One of an engine whose attention has tokens where they are in blocks."""
    config = types.SimpleNamespace(
        device_config=types.SimpleNamespace(device_type="other"), kv_transfer_config=types.SimpleNamespace(engine_id="e"),
        parallel_config=types.SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=1))
    group = types.SimpleNamespace(kv_cache_spec=types.SimpleNamespace(block_size=SLOTS), layer_names=["l"])
    cache = types.SimpleNamespace(kv_cache_groups=[group], num_blocks=100)
    return Scheduler(node, config, cache, Settings(kv_recompute_threshold=1, log_peers=False, **settings))


def request(tokens, name="r", **more):
    ours = {"v": 1, "node": "other", "key": "k", "token": base64.urlsafe_b64encode(TOKEN).decode(), **more.pop("ours", {})}
    return types.SimpleNamespace(
        request_id=name, num_prompt_tokens=tokens, num_tokens=tokens, all_token_ids=list(range(tokens)), num_preemptions=0,
        kv_transfer_params={"do_remote_prefill": True, "kvpipe": ours, **more})


def blocks(tokens):
    return types.SimpleNamespace(get_block_ids=lambda: (list(range(1, 1 + -(-tokens // SLOTS))),))


def step(side):
    return side.step(types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=None))


def begun(side, r, computed=0, count=None):
    """The request is asked about and gets blocks, for all that can be loaded or less."""
    side.add(r)
    most, _ = side.matched(r, computed)
    side.allocated(r, blocks(r.num_prompt_tokens), most if count is None else count)
    return step(side)


@pytest.mark.parametrize("computed, count, tokens, ids", [
    (0, None, (0, 100), [1, 2, 3, 4, 5, 6, 7]),
    (32, None, (32, 100), [3, 4, 5, 6, 7]),
    (32, 64, (32, 96), [3, 4, 5, 6]),  # the engine computes the rest
])
def test_tokens_are_loaded_from_where_the_engine_has_none_on(node, computed, count, tokens, ids):
    step = begun(scheduler(node), request(100), computed, count)
    assert step.recvs == {2: "r"}
    assert [(take["tokens"], take["blocks"]) for take in node.taken] == [(tokens, [ids])]


def placed(side, *nodes):
    side.places({(0, tp): Place(name) for tp, name in enumerate(nodes)})
    return side


@pytest.mark.parametrize("nodes, own, parts, total", [
    (("n", "n"), [0], {}, 1),
    (("n", "far"), [0], {1: 1}, 2),
    (("far", "n"), [0], {0: 1}, 2),
    (("far", "far"), [], {0: 0, 1: 1}, 2),  # a session with no rank on its node can take nothing
])
def test_a_take_has_a_part_for_the_schedulers_node_and_one_for_each_rank_elsewhere(node, nodes, own, parts, total):
    step = begun(placed(scheduler(node, tp=2), *nodes), request(100))
    assert [take["part"] for take in node.taken] == [(part, total) for part in own]
    assert [(load.parts, load.total) for load in step.loads] == ([(parts, total)] if parts else [])
    assert list(step.recvs.values()) == ["r"]
