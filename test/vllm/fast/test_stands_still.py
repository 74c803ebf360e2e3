"""A daemon that stands still (stopped, in a debugger, on a disk that hangs). Its queue gets full, and each call then waits 100 ms for
room: of all hooks together, one call in three seconds may."""

import os
import signal
import time
import types

import kvpipe
import pytest
import sides
from fakes import cache, ends
from kvpipe import Busy
from kvpipe.vllm import submissions
from kvpipe.vllm.layout import Heads
from kvpipe.vllm.meta import QUIET, Load, Step, start_of
from kvpipe.vllm.params import Settings
from kvpipe.vllm.worker import Worker
from sides import blocks, early, request, scheduler
from vllm.v1.request import RequestStatus

STEP = types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=None)


class Queue:
    """A session's. ``full``: whether it is. ``waits``: the calls that have waited for room."""

    def __init__(self, node):
        self.full, self.waits = False, []
        for name in ("watch", "drop", "offer", "take"):
            setattr(node, name, self._into(getattr(node, name), name))

    def _into(self, call, name):
        def calls(*args, **options):
            if self.full:
                self.waits.append(name)
                raise Busy("the submission queue is full")
            made = call(*args, **options)
            for end in ("withdraw", "cancel", "seal"):
                if name == "offer" or name == "take" and end == "cancel":
                    vars(made)[end] = self._into(vars(made).get(end, lambda timeout: None), end)
            return made
        return calls


@pytest.fixture
def queue(node):
    return Queue(node)


def finished(side, r, computed=None):
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, computed or r.num_prompt_tokens
    return side.finished(r, blocks(r.num_prompt_tokens).get_block_ids())


def prefill(side, name):
    r = request(100, name, do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.step(types.SimpleNamespace(num_scheduled_tokens={name: 100}, preempted_req_ids=None))
    return r


def some(side, first):
    """Requests of all kinds come, are asked about, and go."""
    for i in range(first, first + 5):
        waits, goes, offered = request(100, f"waits {i}"), request(100, f"goes {i}"), prefill(side, f"offered {i}")
        side.add(waits), side.add(goes)
        assert side.matched(waits, 0) == (0, False)
        sides.finished(side, goes)
        assert finished(side, offered) == (False, None)
        side.offers.give_back()
        side.step(STEP)


def test_one_call_finds_out_for_all(node, queue, clock):
    side = scheduler(node, decode_offer=60.0, decode_offer_share=1.0)
    kept = [request(100, f"kept {i}") for i in range(3)]
    for r in kept:
        side.add(r)
        assert finished(side, r)[0]
    queue.full = True
    for moment in range(3):
        some(side, 10 * moment)
        assert len(queue.waits) == moment + 1
        clock[0] += 3.1


def test_prompts_are_loaded_again_once_it_goes_on(node, queue, clock):
    side, before, after = scheduler(node), request(100, "before"), request(100, "after")
    queue.full = True
    side.add(before)
    assert side.matched(before, 0) == (0, False)
    queue.full = False
    clock[0] += 3.1
    side.add(after)
    assert side.matched(after, 0) == (100, True)


def test_what_could_not_be_withdrawn_is_withdrawn_then(node, queue, clock):
    """The model has changed: nobody may take KV of the one before."""
    side = scheduler(node)
    answers = [finished(side, prefill(side, name)) for name in "ab"]
    assert all(sent for sent, _ in answers)
    queue.full = True
    side.offers.reset()
    side.step(STEP)
    assert queue.waits == ["withdraw"]
    queue.full = False
    side.step(STEP)
    assert not node.said
    clock[0] += 3.1
    side.step(STEP)
    side.step(STEP)
    assert sorted(node.said) == sorted(("withdraw", key) for key in node.offered)


def test_a_load_that_nobody_waits_for_any_more_is_cancelled_then(node, queue, clock):
    side, r = scheduler(node), request(100)
    sides.begun(side, r)
    queue.full = True
    sides.finished(side, r)
    assert queue.waits == ["cancel"]
    queue.full = False
    clock[0] += 3.1
    side.step(STEP)
    assert ("cancel", "k") in node.said


def test_nothing_is_cancelled_that_has_ended_by_itself_meanwhile(node, queue, clock):
    side, loads = scheduler(node), [request(100, f"r{i}", ours={"key": f"k{i}"}) for i in range(2)]
    for r in loads:
        sides.begun(side, r)
    tags, queue.full = list(side._operations.running), True
    for r in loads:
        sides.finished(side, r)
    node.coming = [ends(tags[0])]
    side.step(STEP)
    queue.full = False
    clock[0] += 3.1
    side.step(STEP)
    assert list(side._operations.running) == tags[1:] and [said for said in node.said if said[0] == "cancel"] == [("cancel", "k1")]


def test_an_offer_that_cannot_be_sealed_cannot_be_taken(node, queue, clock):
    side, r = scheduler(node, layerwise=True), early(100, do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    (running,) = side._operations.running.values()
    running.operation._tokens, queue.full = 100, True
    assert finished(side, r) == (True, None)
    assert queue.waits == ["seal"]
    queue.full = False
    clock[0] += 3.1
    side.step(STEP)
    assert node.said == [("withdraw", "transfer:t r")]


def test_a_worker_asks_once_too(node, queue, clock):
    worker = Worker(node, None, cache(), Settings(), Heads(1, 2))
    loads = [Load(tag, f"r{tag}", "k", "other", b"t" * 16, None, b"", [[1, 2]], 0, 64, start_of(1), {1: 1}, 2, 30.0, False)
             for tag in range(1, 6)]
    queue.full = True
    worker.begin(step := Step(1, loads=loads, recvs={load.tag: load.request for load in loads}))
    assert worker.results(step, set()).failed_recving == {load.request for load in loads}
    assert queue.waits == ["take"]


def test_a_worker_cancels_then_too(node, queue, clock):
    worker = Worker(node, None, cache(), Settings(), Heads(1, 2))
    load = Load(1, "r", "k", "other", b"t" * 16, None, b"", [[1, 2]], 0, 64, start_of(1), {1: 1}, 2, 30.0, False)
    worker.begin(Step(1, last=1, loads=[load], recvs={1: "r"}))
    queue.full = True
    worker.begin(step := Step(2, last=1, cancelled=[1]))
    worker.results(step, set())
    assert queue.waits == ["cancel"]
    queue.full = False
    worker.results(QUIET, set())
    assert ("cancel", "k") not in node.said
    clock[0] += 3.1
    for _ in range(2):
        worker.results(QUIET, set())
    assert node.said.count(("cancel", "k")) == 1


def test_nor_does_a_worker_cancel_what_has_ended_by_itself(node, queue, clock):
    worker = Worker(node, None, cache(), Settings(), Heads(1, 2))
    load = Load(1, "r", "k", "other", b"t" * 16, None, b"", [[1, 2]], 0, 64, start_of(1), {1: 1}, 2, 30.0, False)
    worker.begin(Step(1, last=2, loads=[load, load._replace(tag=2, request="s", key="s")], recvs={1: "r", 2: "s"}))
    queue.full = True
    worker.begin(step := Step(2, last=2, cancelled=[1, 2]))
    node.coming = [ends(1)]
    assert worker.results(step, set()).finished_recving == {"r"}
    queue.full = False
    clock[0] += 3.1
    worker.results(QUIET, set())
    assert [said for said in node.said if said[0] == "cancel"] == [("cancel", "s")]


def test_it_is_said_once(node, queue, clock, monkeypatch):
    said = []
    monkeypatch.setattr(submissions, "logger", types.SimpleNamespace(
        warning=lambda *_: said.append("it stands"), info=lambda *_: said.append("it goes on")))
    side = scheduler(node)
    for queue.full in (True, True, False, False, True):
        side.add(request(100, f"at {clock[0]}"))
        clock[0] += 3.1
    assert said == ["it stands", "it goes on", "it stands"]


def test_a_real_one(near):
    waits = []
    with kvpipe.connect(near.socket, engine_id="e", role="scheduler", cq_entries=8192) as node:
        def through(call):
            def calls(*args, **options):
                try:
                    return call(*args, **options)
                except Busy:
                    waits.append(call.__name__)
                    raise
            return calls

        node.watch, node.drop = through(node.watch), through(node.drop)
        side, began = scheduler(node), time.monotonic()
        os.kill(near.process.pid, signal.SIGSTOP)
        try:
            for i in range(1200):  # a queue has room for 1,024
                r = request(640, f"r{i}", ours={"key": f"k{i}"})
                side.add(r)
                sides.finished(side, r)
        finally:
            os.kill(near.process.pid, signal.SIGCONT)
        assert 1 <= len(waits) <= 1 + (time.monotonic() - began) // 3
