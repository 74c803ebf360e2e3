"""Loads that a step waits for: when, and what becomes of one that fails."""

import types

import pytest
from fakes import cache, ends, window
from sides import BLOCK, SLOTS, TOKEN, blocks, request, scheduler, step

from kvpipe import Completion, Reason, Status, Timeout, Unavailable
from kvpipe.completion import Run
from kvpipe.vllm import atonce
from kvpipe.vllm.layout import Heads
from kvpipe.vllm.meta import Load, Place, Step
from kvpipe.vllm.params import Settings
from kvpipe.vllm.worker import Worker


def known(node, rate=1e12, **settings):
    """A scheduler's side that has loaded from the other node before, at so many bytes a second."""
    side = scheduler(node, **settings)
    side.evicted = set()
    side._at_once.met("other", rate)
    side._at_once.evict = side.evicted.update
    return side


def asked(side, r, answer=Status.DONE):
    """What the engine hears of a request that comes, whose producer answers, or has not yet."""
    side.add(r)
    if answer is not None:
        side._node.coming = [ends(side._operations.last, answer, 0 if answer == Status.DONE else Reason.NOT_FOUND)]
    return side.matched(r, 0)


def test_an_engine_with_nothing_else_waits_for_a_short_load(node):
    side, r = known(node), request(100)
    assert asked(side, r) == (99, False), "one token is left to compute"
    side.allocated(r, blocks(100), 99)
    told = step(side)
    assert [(load.at_once, load.blocks, load.stop, load.timeout) for load in told.loads] == [
        (True, [[1, 2, 3, 4, 5, 6, 7]], 99, atonce.PATIENCE)]
    assert not told.recvs and not node.taken, "its workers take it, since they wait for it"


def test_a_producer_is_met_by_its_rate(node):
    told = []
    at_once = known(node)._at_once
    at_once._met = lambda peer, rate: told.append((peer, rate))
    at_once.met("other", 5.0)
    assert told == [("other", 5.0)]


def test_it_gives_the_producer_a_moment_to_answer(node, monkeypatch):
    monkeypatch.setattr(atonce, "ANSWER", 5000)
    side, r = known(node), request(100)
    side.add(r)
    heard = iter([[], [], [ends(side._operations.last)]])
    node.poll = lambda: next(heard, [])
    assert side.matched(r, 0) == (99, False)


def test_what_prefill_has_only_a_part_of_is_loaded_whole(node):
    assert asked(known(node), request(100, ours={"tokens": 64})) == (64, False)


def test_the_first_load_from_a_node_tells_how_fast_it_is(node):
    side, first = scheduler(node), request(100)
    side._at_once.evict = set
    assert asked(side, first) == (100, True)
    side.allocated(first, blocks(100), 100)
    node.coming = [ends(side._operations.last)._replace(bytes=7 * BLOCK)]
    step(side)
    side.ended({"r"}, (), ())
    side.finished(first, ([],))
    assert asked(side, request(100, "second")) == (99, False)


#: at which 100 tokens take twice as long as a step may expect to wait
SLOW = 100 * BLOCK / SLOTS / (2 * atonce.SHORT)


@pytest.mark.parametrize("settings, answer", [
    ({"rate": SLOW}, Status.DONE),
    ({}, None),
    ({"policy": "fail"}, Status.DONE),  # one that is given up early would be an error
    ({"flight": 2}, Status.DONE),  # the step after the one that fails has begun, and is believed
    ({"specs": [window(400)]}, Status.DONE),  # what it fails of cannot be computed alone
    ({"v2": True}, Status.DONE),  # Model Runner V2 does not take back the step that fails
])
def test_others_are_loaded_beside(node, settings, answer):
    assert asked(known(node, **settings), request(100), answer) == (100, True)


@pytest.mark.parametrize("place", [Place("n", alone=False), object()], ids=["by our worker's word", "whose worker alone says a word"])
def test_beside_another_connector_no_step_waits(node, place):
    """It would store what the step has computed, before it is known that nothing came."""
    side = known(node)
    side.places({(0, 0): place})
    assert asked(side, request(100)) == (100, True)


@pytest.mark.parametrize("computed, heard", [(64, (35, False)), (32, (68, True))])
def test_a_step_waits_for_what_is_missing_if_that_is_short(node, computed, heard):
    """Of 100 tokens it would wait for half, and has the first ones."""
    side, r = known(node, rate=SLOW), request(100)
    side.add(r)
    node.coming = [ends(side._operations.last)]
    assert side.matched(r, computed) == heard


def test_nothing_is_loaded_of_what_is_not_there(node):
    side, r = known(node), request(100)
    assert asked(side, r, Status.FAILED) == (0, False)
    side.allocated(r, blocks(100), 0)
    assert not step(side).loads


def test_no_other_request_waits_for_a_load_or_finds_what_does_not_come(node):
    side, r = known(node), request(100)
    side.add(types.SimpleNamespace(request_id="other", kv_transfer_params=None))
    assert asked(side, r) == (100, True)
    side.finished(types.SimpleNamespace(request_id="other", status=None, kv_transfer_params=None), ([],))
    assert side.matched(r, 0) == (99, False)


def test_after_a_failure_nobody_finds_its_blocks_the_offer_is_dropped_and_the_next_load_is_beside(node):
    side, r = known(node), request(100)
    asked(side, r)
    side.allocated(r, blocks(100), 99)
    step(side)
    side.ended((), {99})
    assert not side.evicted and ("drop", "k") not in node.told, "blocks of another"
    side.ended((), {3})
    assert side.evicted == {1, 2, 3, 4, 5, 6, 7} and ("drop", "k") in node.told
    side.finished(r, ([],))
    assert asked(side, request(100, "next")) == (100, True)


def test_a_load_that_cannot_be_told_of_fails_the_step_that_waits_for_it(node):
    side, r = known(node), request(100)
    asked(side, r)
    r.prompt_embeds = "no tensor"
    with pytest.raises(AttributeError):
        side.allocated(r, blocks(100), 99)
    assert asked(side, request(100, "next")) == (100, True), "it says nothing of another of that KV"
    told = step(side)
    assert told.spoiled == [1, 2, 3, 4, 5, 6, 7] and not told.recvs
    side.ended((), {1, 2, 3, 4, 5, 6, 7})
    assert side.evicted == {1, 2, 3, 4, 5, 6, 7}, "others would find them"


# ---- the worker's side


@pytest.fixture
def worker(node):
    return Worker(node, None, cache(), Settings(log_peers=False), Heads(0, 1))


LOAD = Load(7, "r", "k", "other", TOKEN, None, b"", [[1, 2, 3]], 0, 40, 1 << 16, {0: 0}, 1, 1.0, False, True)


class Take:
    """The daemon lets go of its blocks when it has been asked for so often."""

    def __init__(self, end: Completion, late=0):
        self.completion, self.happened, self._late = end, [], late

    def wait(self, timeout):
        assert 0 < timeout <= LOAD.timeout
        self.happened.append("wait")
        if self.completion.status != Status.DONE:
            raise self.completion.error()

    def cancel(self, timeout):
        assert timeout == 0
        self.happened.append("cancel")

    def wait_released(self, timeout):
        self.happened.append("released?")
        self._late -= 1
        if self._late >= 0:
            raise Timeout("not yet")


def took(node, worker, end, late=0, waits=True):
    """(the take, what the worker reports after a step that waits for it)"""
    take = Take(end, late)
    node.take = lambda *_, **options: take
    named = Step(1, last=7, loads=[LOAD])
    worker.begin(named)
    if waits:
        worker.load()
    take.happened.append("compute")
    worker.saved()
    node.coming = [end]
    return take, worker.results(named, set())


FAILED = ends(7, Status.FAILED, Reason.PEER_GONE)


def test_the_step_computes_on_what_it_waited_for(node, worker):
    met, worker._loads._met = [], lambda *peer: met.append(peer)
    take, out = took(node, worker, ends(7)._replace(bytes=50))
    assert take.happened == ["wait", "compute"] and not out.finished_recving and not worker.failed_blocks()
    assert worker.counts().to_dict()["load_bytes"] == [50], "once"
    assert not node.coming, "its end does not stay in the ring"
    assert not met, "the scheduler's side has, by an earlier load, or it would not have let a step wait"


def test_each_step_counts_its_own_load(node, worker):
    for number in 1, 2, 3:
        node.take = lambda *_, **options: Take(ends(number))
        worker.begin(named := Step(number, last=number, loads=[LOAD._replace(tag=number, at_once=False, layered=True)]))
        worker.load()
        worker.results(named, set())
        assert len(worker.counts().to_dict()["load_seconds"]) == 1 and not worker.failed_blocks()


#: the end of a run that goes on to the last block there could be: all of the take has failed
ALL = (1 << 32) - 1


@pytest.mark.parametrize("failed, bad", [((), {1, 2, 3}), ((Run(0, 2, 4),), {2, 3}), ((Run(0, ALL - 3, ALL),), {1, 2, 3})])
def test_blocks_that_failed_are_told(node, worker, failed, bad):
    _, out = took(node, worker, FAILED._replace(failed=failed))
    assert not out.finished_recving and not out.failed_recving
    assert worker.failed_blocks() == bad and worker.counts().to_dict()["failed"] == {"peer_gone": 1}


def test_they_are_told_once_nothing_lands_in_them_any_more_however_long_that_takes(node, worker):
    take, _ = took(node, worker, FAILED, late=3)
    assert take.happened == ["wait", "compute", "cancel"] + 4 * ["released?"]


def test_with_the_session_nothing_lands_any_more(node, worker, monkeypatch):
    def over(*_):
        raise Unavailable("the session is over")

    monkeypatch.setattr(Take, "wait_released", over)
    took(node, worker, FAILED)
    assert worker.failed_blocks() == {1, 2, 3}


def test_what_no_step_waited_for_is_not_believed(node, worker):
    """Nor counted as a load, though it came in the end."""
    take, _ = took(node, worker, ends(7), waits=False)
    assert take.happened == ["compute", "cancel", "released?"] and worker.failed_blocks() == {1, 2, 3}
    counted = worker.counts().to_dict()
    assert (counted["load_seconds"], counted["failed"]) == ([], {"timeout": 1})


@pytest.mark.parametrize("late, bad", [((), set()), ((0,), {1, 2, 3}), ((1,), {1, 2, 3})], ids=["", "the first", "the last"])
def test_a_layer_that_came_after_it_was_computed_on_is_not_believed(node, worker, late, bad):
    """Though all of them are there in the end."""
    take, named, asked = Take(ends(7)), Step(1, last=7, loads=[LOAD._replace(layered=True, at_once=False)]), []

    def wait_layer(layer, timeout):
        asked.append(layer)
        assert 0 < timeout <= LOAD.timeout
        if layer in late:
            raise Timeout("not yet")

    node.take, take.wait_layer = lambda *_, **options: take, wait_layer
    worker.memory.layers = {"l0": 0, "l1": 1}
    worker.begin(named)
    worker.load()
    for name in worker.memory.layers:
        worker.wait_layer(name)
    worker.saved()
    worker.results(named, set())
    assert worker.failed_blocks() == bad and asked == ([0] if late == (0,) else [0, 1])
    assert not worker._loads._lost, "no step asks about it any more"


def test_so_are_those_of_a_load_that_is_refused_and_of_one_that_never_began(node, worker):
    node.refuses = Unavailable("no")
    named = Step(1, last=7, loads=[LOAD], spoiled=[9])
    worker.begin(named)
    worker.load()
    worker.results(named, set())
    assert worker.failed_blocks() == {1, 2, 3, 9}
