"""The next turn of a conversation: prefill loads what decode has computed meanwhile, and computes what is new."""

import pytest

from harness.fleet import Proxy
from harness.handover import equal, prompt, tokens

pytestmark = pytest.mark.core

MORE = 40  # tokens of the next turn


@pytest.fixture
def keeper(fleet):
    """A decode instance that keeps what it has finished, for longer than any test."""
    keeper = fleet.start("decode-keeps", "node-b", {"decode_offer": 300}).ready()
    yield keeper
    forget(keeper)


def forget(engine):
    """What is kept is free at once when the cache is reset."""
    engine.http.post("/reset_prefix_cache", params={"reset_external": True}).raise_for_status()


@pytest.mark.parametrize("number", [0, 1], ids=["the same prefill instance", "another one"])
def test_prefill_computes_only_what_is_new(fleet, keeper, reference, number):
    first = prompt(200, f"first turn {number}")
    with Proxy([fleet.prefill(0).ready()], [keeper]) as proxy:
        answer = proxy.completion(first)
    assert answer["kv_transfer_params"], "D keeps nothing"

    second = first + tokens(answer) + prompt(MORE, f"second turn {number}")
    p = fleet.prefill(number).ready()
    with Proxy([p], [keeper]) as proxy:
        answer = proxy.completion(second, kv_transfer_params=answer["kv_transfer_params"])
    equal(tokens(answer), tokens(reference.completion(second)))
    assert p.computed(answer["id"])[0] == MORE + 1, "all but the last token of D's answer has KV"
    assert keeper.computed(answer["id"])[0] == 1


def test_decode_keeps_a_share_of_its_blocks(keeper):
    """A fifth of 512, and two of these."""
    answers = [keeper.completion(prompt(1500, f"kept {i}")) for i in range(3)]
    assert [bool(answer["kv_transfer_params"]) for answer in answers] == [True, True, False]


def test_a_request_may_ask_for_it_alone(d):
    """What was kept for a turn that does not come is free when its time is over, which the end of the test waits for."""
    assert d.completion(prompt(100, "asks"), kv_transfer_params={"kvpipe": {"v": 1, "keep": 1}})["kv_transfer_params"]
    assert not d.completion(prompt(100, "does not ask"))["kv_transfer_params"]
