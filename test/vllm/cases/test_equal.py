"""What D says after a hand-over is, token for token, what one instance says; and it did not compute it again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.handover import decode, equal, handover, prefill, prompt, prompts, tokens, unequal

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def expected(fleet):
    instance = fleet.reference().ready()
    with ThreadPoolExecutor(16) as pool:
        return [tokens(answer) for answer in pool.map(instance.completion, prompts())]


def test_one_by_one(p, d, expected):
    for i, ids in enumerate(prompts()):
        answer = handover(p, d, ids)
        equal(tokens(answer), expected[i], f"prompt {i}, {len(ids)} tokens")
        assert d.computed(answer["id"])[0] == 1, f"prompt {i}, {len(ids)} tokens: computed by D"


def test_all_at_the_same_time(fleet, expected):
    p, d = (fleet.start(f"{role}-fresh", node).ready() for role, node in (("prefill", "node-a"), ("decode", "node-b")))
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda ids: handover(p, d, ids), prompts()))
    equal([tokens(a) for a in answers], expected)
    assert [d.computed(a["id"])[0] for a in answers] == [1] * len(answers)


def test_a_corrupted_block_changes_the_output(p, d, reference):
    ids = prompt(200, "corrupt")
    right = tokens(reference.completion(ids))
    params = prefill(p, ids)
    p.rpc("probe_corrupt", params["remote_block_ids"][0][2])
    answer = decode(d, ids, params)
    assert set(d.computed(answer["id"])) == {1}, "D computed the prompt after all"
    unequal(tokens(answer), right)
