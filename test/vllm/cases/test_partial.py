"""When some of several prompts cannot be loaded, only those are computed; the others decode at once."""

import copy
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.handover import prefill, prompt, tokens

pytestmark = pytest.mark.core

N, LENGTH = 8, 200


@pytest.fixture(scope="module")
def wide(fleet):
    """A decode instance whose step has room for all prompts, and which gives a load up after a time that the others never need."""
    room = ("--max-num-batched-tokens", str(N * LENGTH))
    return fleet.start("decode-wide", "node-b", {"timeout": 12}, more=room).ready()


def unknown_key(params):
    """Nobody offers this: the take waits until its time is over."""
    broken = copy.deepcopy(params)
    broken["kvpipe"]["key"] += "-not"
    return broken


def wrong_token(params):
    """Refused at once."""
    broken = copy.deepcopy(params)
    broken["kvpipe"]["token"] = "A" * 32
    return broken


def stream(engine, ids, params):
    """(token ids, seconds to the first of them, answer's id) of a request."""
    body = {"model": "tiny", "prompt": ids, "temperature": 0, "max_tokens": 16, "ignore_eos": True, "stream": True,
            "return_token_ids": True, "kv_transfer_params": params}
    began, first, out, name = time.monotonic(), None, [], None
    with engine.http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                first = first or time.monotonic() - began
                chunk = json.loads(line[6:])
                name = chunk["id"]
                out += chunk["choices"][0]["token_ids"] or []
    return out, first, name


def batch(p, d, reference, k, fail, seed):
    """N hand-overs at the same time of which k fail; (first-token seconds of the others, of the k)."""
    ids = [prompt(LENGTH, f"{seed} {i}") for i in range(N)]
    params = [prefill(p, x) for x in ids]
    failing = set(range(0, 2 * k, 2)) if 2 * k <= N else set(range(k))
    for i in failing:
        params[i] = fail(params[i])
    with ThreadPoolExecutor(N) as pool:
        answers = list(pool.map(stream, [d] * N, ids, params))
    assert [a[0] for a in answers] == [tokens(reference.completion(x)) for x in ids]
    for i, (_, _, name) in enumerate(answers):
        computed = d.computed(name)
        assert computed[0] == (LENGTH if i in failing else 1), f"request {i} of {sorted(failing)}: {computed}"
        assert len(computed) == 16, f"request {i} was computed again"
    return [a[1] for i, a in enumerate(answers) if i not in failing], [answers[i][1] for i in failing]


def run(p, d, reference, failures, fail, capsys):
    """A batch for each k of failures, and what it took. The others are not later for those that fail: than without failures, by what
    batches differ on a machine whose cores engines and test share. Of three without, twice the slowest request is less than a second,
    where waiting for a load that fails takes many."""
    rows = [(k, *batch(p, d, reference, k, fail, f"{fail.__name__} {n}")) for n, k in enumerate((0, 0, *failures))]
    with capsys.disabled():
        print(f"\n{fail.__name__}: time to first token in ms of {N} requests, k of which fail")
        for k, others, failed in rows:
            line = f"  k={k}"
            for what, seconds in (("others", others), ("failed", failed)):
                if seconds:
                    line += f"   {what}: median {statistics.median(seconds) * 1e3:6.1f}, last {max(seconds) * 1e3:6.1f}"
            print(line)
    without = [seconds for k, others, _ in rows if k == 0 for seconds in others]
    limit = statistics.median(without) + 2 * max(without)
    for k, others, _ in rows:
        assert statistics.median(others) <= limit, f"the others were later when {k} of {N} failed"
    return rows


def test_k_of_n_are_refused(p, wide, reference, capsys):
    run(p, wide, reference, range(N), wrong_token, capsys)


def test_k_of_n_never_come(p, wide, reference, capsys):
    """The others do not wait for the end of a load that will fail: all of their first tokens come before."""
    for k, others, failed in run(p, wide, reference, (0, 1, 4), unknown_key, capsys):
        assert k == 0 or max(others) < min(failed)
