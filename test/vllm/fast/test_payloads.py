"""kv_transfer_params, through every router that is known: from prefill's answer to decode's request."""

import json

import pytest
from routers import load

from kvpipe.vllm import params

NIXL = {"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host",
        "remote_port", "tp_size"}
SOURCE = params.Source(node="node-0", key="cmpl-7-0/1", token=bytes(range(16)), trace="cmpl-7", tokens=40)

ROUTERS = load()
COPY = [r for r in ROUTERS if "kv_transfer_params" in r.decode_request({"kv_transfer_params": {"mark": 1}})
        and r.decode_request({"kv_transfer_params": {"mark": 1}})["kv_transfer_params"].get("mark") == 1]
OTHERS = [r for r in ROUTERS if r not in COPY]


def each(routers):
    return pytest.mark.parametrize("router", routers, ids=[r.name for r in routers])


def answer(**changes):
    """What prefill's HTTP answer carries, as a router reads it."""
    made = params.outgoing(blocks=([3, 4, 9], [0, 7]), engine="engine-p", request="cmpl-7-0", address="10.0.0.7:7650", tp=2,
                           source=SOURCE._replace(**changes))
    return json.loads(json.dumps({"id": "cmpl-7", "choices": [], "kv_transfer_params": made}))


def test_the_routers_are_those_that_are_known():
    assert {r.name for r in ROUTERS} >= {
        "vLLM toy_proxy_server", "AIBrix, connector type shfs", "AIBrix, connector type nixl",
        "llm-d sidecar, connector nixlv2", "production-stack, disaggregated_prefill_orchestrated"}
    assert len(COPY) == 5


def test_the_answer_has_nixls_keys_and_one_of_our_own():
    made = answer()["kv_transfer_params"]
    assert set(made) == NIXL | {"kvpipe"}
    assert made["remote_block_ids"] == [[3, 4, 9], [0, 7]] and (made["remote_host"], made["remote_port"]) == ("10.0.0.7", 7650)
    assert (made["do_remote_prefill"], made["do_remote_decode"], made["tp_size"]) == (True, False, 2)
    assert (made["remote_engine_id"], made["remote_request_id"]) == ("engine-p", "cmpl-7-0")
    assert set(made["kvpipe"]) >= {"v", "node", "key", "token", "trace"} and made["kvpipe"]["node"] == "node-0"


@each(COPY)
def test_what_prefill_said_reaches_decode(router):
    """The source is found by our own dict: some routers put the pod's address into remote_host."""
    asked = router.prefill_request()["kv_transfer_params"]
    assert asked["do_remote_decode"] is True and asked["do_remote_prefill"] is False and "kvpipe" not in asked
    got = router.decode_request(answer())["kv_transfer_params"]
    assert got["do_remote_prefill"] is True and params.incoming(got) == SOURCE


@each(COPY)
@pytest.mark.parametrize("changes", [dict(node="n" * 255), dict(key="k" * 256), dict(token=bytes(32)), dict(token=b"\xff" * 16),
                                     dict(trace=None), dict(tokens=0), dict(tokens=2**31 - 1), dict(key="schlüssel/鍵")],
                         ids=lambda c: next(iter(c)))
def test_every_value_survives(router, changes):
    """JSON, and for one router the numbers of another language in between."""
    got = router.decode_request(answer(**changes))["kv_transfer_params"]
    assert params.incoming(got) == SOURCE._replace(**changes)


@each([r for r in COPY if r.turns])
def test_the_next_turn_names_decode_as_the_source(router):
    decoded = {"kv_transfer_params": params.outgoing(
        blocks=([1, 2],), engine="engine-d", request="cmpl-7-0", address="", tp=1, source=SOURCE._replace(node="node-1"),
        prefill=False)}
    asked = router.prefill_request(json.loads(json.dumps(decoded)))["kv_transfer_params"]
    assert asked["do_remote_decode"] is True and asked["do_remote_prefill"] is False
    assert params.incoming(asked) == SOURCE._replace(node="node-1")


@each(OTHERS)
def test_a_router_that_drops_what_we_said_is_told_apart(router):
    """Nothing is loaded then, and there are words for why."""
    got = router.decode_request(answer()).get("kv_transfer_params")
    assert got is None or 'no "kvpipe" dict' in params.incoming(got)


@each(ROUTERS)
def test_an_answer_without_parameters(router):
    """Prefill had no daemon: whatever decode is sent names no source."""
    got = router.decode_request({"id": "cmpl-7", "choices": []}).get("kv_transfer_params")
    assert got is None or isinstance(params.incoming(got), str)


GOOD = answer()["kv_transfer_params"]["kvpipe"]


@pytest.mark.parametrize("ours, words", [
    ("text", "is a str: must be a dict"),
    ([1], "is a list: must be a dict"),
    ({}, "v is None"),
    ({**GOOD, "v": 2}, "v is 2: this engine understands 1"),
    ({**GOOD, "v": "1"}, "v is '1'"),
    ({**GOOD, "v": "v" * 10_000}, "v is 'vvv"),
    ({**GOOD, "node": ""}, "kvpipe.node is ''"),
    ({**GOOD, "node": 7}, "kvpipe.node is '7'"),
    ({**GOOD, "node": "n" * 256}, "1 to 255 bytes"),
    ({**GOOD, "node": "a\0b"}, "kvpipe.node"),
    ({**GOOD, "key": None}, "kvpipe.key is 'None'"),
    ({**GOOD, "key": "k" * 257}, "1 to 256 bytes"),
    ({**GOOD, "token": None}, "16 to 32 bytes in base64url"),
    ({**GOOD, "token": "AAAA"}, "16 to 32 bytes"),
    ({**GOOD, "token": "ä" * 22}, "16 to 32 bytes"),
    ({**GOOD, "token": "!" * 22}, "16 to 32 bytes"),
    ({**GOOD, "token": "A" * 10_000}, "16 to 32 bytes"),
    ({**GOOD, "tokens": -1}, "kvpipe.tokens is '-1'"),
    ({**GOOD, "tokens": True}, "kvpipe.tokens is 'True'"),
    ({**GOOD, "tokens": 1 << 31}, "kvpipe.tokens"),
    ({**GOOD, "tokens": "40"}, "kvpipe.tokens is '40'"),
], ids=str)
def test_what_a_client_makes_up_is_answered_in_words(ours, words):
    said = params.incoming({**answer()["kv_transfer_params"], "kvpipe": ours})
    assert isinstance(said, str) and words in said and "\n" not in said and len(said) < 300


def test_a_newer_release_may_add_keys():
    assert params.incoming({**answer()["kv_transfer_params"], "later": 1, "kvpipe": {**GOOD, "later": {"x": 1}}}) == SOURCE
