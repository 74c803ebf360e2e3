"""When some of several prompts cannot be loaded, only those are computed; the others decode at once."""

import copy
import functools
import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.fleet import NODES
from harness.handover import equal, prefill, prompt, tokens
from caches import Cache  # of python/tests, where the fleet's daemons are from
from kvpipe.vllm.params import decode_token

pytestmark = pytest.mark.core

N, LENGTH = 8, 200


@pytest.fixture
def node(fleet):
    """Another engine beside the prefill instance."""
    with Cache(fleet.nodes[NODES[0]].socket, "another") as cache:
        yield cache.node


@pytest.fixture(scope="module")
def wide(fleet):
    """A decode instance whose step has room for all prompts."""
    room = ("--max-num-batched-tokens", str(N * LENGTH))
    return fleet.start("decode-wide", NODES[1], more=room).ready()


def unknown_key(params):
    """Nobody offers this yet: the take waits."""
    broken = copy.deepcopy(params)
    broken["kvpipe"]["key"] += "-not"
    return broken


def wrong_token(params):
    """Refused at once."""
    broken = copy.deepcopy(params)
    broken["kvpipe"]["token"] = "A" * 32
    return broken


def stream(engine, ids, params, came):
    """(token ids, seconds to the first of them, answer's id) of a request; came() is called at its first token."""
    body = {"model": "tiny", "prompt": ids, "temperature": 0, "max_tokens": 16, "ignore_eos": True, "stream": True,
            "return_token_ids": True, "kv_transfer_params": params}
    began, first, out, name = time.monotonic(), None, [], None
    with engine.http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                if first is None:
                    first = time.monotonic() - began
                    came()
                chunk = json.loads(line[6:])
                name = chunk["id"]
                out += chunk["choices"][0]["token_ids"] or []
    return out, first, name


class Order:
    """In which order first tokens came; calls then() at the last of those that are awaited."""

    def __init__(self, awaited, then):
        self.came, self._awaited, self._then, self._lock = [], set(awaited), then, threading.Lock()

    def add(self, i):
        with self._lock:
            self.came.append(i)
            if self._awaited == set(self.came):
                self._then()


def batch(p, d, reference, node, k, fail, seed, then=lambda params: None):
    """N hand-overs at the same time of which k fail; then(their params) is called when all others have their first token, and no other
    one. Returns the seconds to the first token of the others, and of the k."""
    ids = [prompt(LENGTH, f"{seed} {i}") for i in range(N)]
    params = [prefill(p, x) for x in ids]
    failing = set(range(0, 2 * k, 2)) if 2 * k <= N else set(range(k))
    nobodys = [params[i]["kvpipe"] for i in failing]
    for i in failing:
        params[i] = fail(params[i])
    order = Order(set(range(N)) - failing, lambda: then([params[i] for i in failing]))
    with ThreadPoolExecutor(N) as pool:
        answers = list(pool.map(stream, [d] * N, ids, params, [functools.partial(order.add, i) for i in range(N)]))
    equal([a[0] for a in answers], [tokens(reference.completion(x)) for x in ids])
    for i, (_, _, name) in enumerate(answers):
        computed = d.computed(name)
        assert computed[0] == (LENGTH if i in failing else 1), f"request {i} of {sorted(failing)}: {computed}"
        assert len(computed) == 16, f"request {i} was computed again"
    for offer in nobodys:  # instead of its lease
        node.drop(offer["key"], None, decode_token(offer["token"])).wait(30)
    return [a[1] for i, a in enumerate(answers) if i not in failing], [answers[i][1] for i in failing]


def run(p, d, reference, node, failures, fail, capsys, then=lambda params: None):
    """A batch for each k of failures, and what it took: printed, as a machine whose cores engines and test share says little by it."""
    rows = [(k, *batch(p, d, reference, node, k, fail, f"{fail.__name__} {n}", then)) for n, k in enumerate((0, 0, *failures))]
    with capsys.disabled():
        print(f"\n{fail.__name__}: time to first token in ms of {N} requests, k of which fail")
        for k, others, failed in rows:
            line = f"  k={k}"
            for what, seconds in (("others", others), ("failed", failed)):
                if seconds:
                    line += f"   {what}: median {statistics.median(seconds) * 1e3:6.1f}, last {max(seconds) * 1e3:6.1f}"
            print(line)


def test_k_of_n_are_refused(p, wide, reference, node, capsys):
    run(p, wide, reference, node, (1, 4, 7), wrong_token, capsys)


def test_k_of_n_wait_for_ever(p, wide, reference, node, capsys):
    """The others do not wait for a load that will fail: it fails only when all of them have their first token. Who then offers its key
    has chosen another token, which ends the load."""
    refused = []

    def refuse(params):
        refused.extend(node.offer(one["kvpipe"]["key"], [0], tokens=16) for one in params)

    run(p, wide, reference, node, (1, 4, 7), unknown_key, capsys, refuse)
    assert len(refused) == 12
