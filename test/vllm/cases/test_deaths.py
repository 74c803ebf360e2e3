"""Somebody is killed while KV is on its way: whoever lives answers rightly, and holds nothing afterwards."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from harness.fleet import BRIEF
from harness.handover import decode, equal, prefill, prompt, tokens
from harness.wait import eventually

pytestmark = pytest.mark.core


@pytest.fixture(autouse=True)
def restored(fleet):
    """Whoever was killed is there again for the next test."""
    yield
    for daemon in fleet.nodes.values():
        if daemon.process.poll() is not None:
            daemon.start()
    for engine in fleet.instances.values():
        if engine.pidfd is None:
            engine.start()


@pytest.fixture
def near(fleet):
    """The daemon of the prefill side."""
    return fleet.nodes["node-a"]


@pytest.fixture
def far(fleet):
    return fleet.nodes["node-b"]


@contextlib.contextmanager
def loading(near, far, d, ids, params):
    """D's take waits, since P's daemon does not answer, until the block ends; yields the future of D's answer."""
    os.kill(near.process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(decode, d, ids, params)
            eventually(lambda: far.ask("transfers"))
            yield answer
        finally:
            if near.process.poll() is None:
                os.kill(near.process.pid, signal.SIGCONT)


def test_prefill_engine_after_its_answer(p, d, reference):
    ids = prompt(333, "p after")
    params = prefill(p, ids)
    p.kill()
    answer = decode(d, ids, params)
    equal(tokens(answer), tokens(reference.completion(ids)))
    assert d.computed(answer["id"])[0] == 1, "its daemon has the KV, but D computed it"


def test_prefill_engine_while_decode_loads(p, d, near, far, reference):
    ids = prompt(334, "p loads")
    with loading(near, far, d, ids, prefill(p, ids)) as answer:
        p.kill()
    equal(tokens(answer.result()), tokens(reference.completion(ids)))
    assert d.computed(answer.result()["id"])[0] == 1, "its daemon has the KV, but D computed it"


def test_decode_engine_while_it_loads(p, d, near, far):
    ids = prompt(335, "d loads")
    with loading(near, far, d, ids, prefill(p, ids)) as answer:
        d.kill()
        with pytest.raises(httpx.HTTPError):
            answer.result()


def test_prefill_daemon_while_decode_loads(p, d, near, far, reference):
    ids = prompt(336, "near loads")
    with loading(near, far, d, ids, prefill(p, ids)) as answer:
        near.kill()
        near.start()
    equal(tokens(answer.result()), tokens(reference.completion(ids)))
    again(p, d, reference, "near")


def test_prefill_daemon_while_decode_loads_and_it_stays_away(fleet, p, near, far, reference):
    d = fleet.start("decode-brief", "node-b", BRIEF).ready()
    ids = prompt(337, "near stays")
    with loading(near, far, d, ids, prefill(p, ids)) as answer:
        near.kill()
    equal(tokens(answer.result()), tokens(reference.completion(ids)))
    assert prefill(p, prompt(100, "without")) is None, "P promised KV without a daemon"
    near.start()
    again(p, d, reference, "stays")


def test_decode_daemon_while_decode_loads(p, d, near, far, reference):
    ids = prompt(338, "far loads")
    with loading(near, far, d, ids, prefill(p, ids)) as answer:
        far.kill()
        far.start()
    equal(tokens(answer.result()), tokens(reference.completion(ids)))
    again(p, d, reference, "far")


def test_decode_daemon_while_it_stays_away(p, d, far, reference):
    ids = prompt(339, "far away")
    params = prefill(p, ids)
    far.kill()
    equal(tokens(decode(d, ids, params)), tokens(reference.completion(ids)))
    far.start()
    again(p, d, reference, "far away")


def test_policy_fail_says_so(fleet, p, near, far, reference):
    """The other policy: the request ends with an error when its time is over, and the engine goes on."""
    d = fleet.start("decode-fail", "node-b", BRIEF, policy="fail").ready()
    ids = prompt(340, "fail")
    with loading(near, far, d, ids, prefill(p, ids)) as answer:
        near.kill()
        with pytest.raises(httpx.HTTPStatusError, match="500"):
            answer.result()
    near.start()
    again(p, d, reference, "fail")


def again(p, d, reference, seed):
    """Hand-overs work, and no engine was started again."""
    def attempt():
        ids = prompt(150, f"again {seed} {next(numbers)}")
        params = prefill(p, ids)
        if not params:
            return False  # P is not back at its daemon yet
        answer = decode(d, ids, params)
        equal(tokens(answer), tokens(reference.completion(ids)))
        return d.computed(answer["id"])[0] == 1

    numbers = iter(range(1000))
    eventually(attempt, every=0.2)
