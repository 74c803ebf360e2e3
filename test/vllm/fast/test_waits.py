"""Requests that wait for their producers: for which of them no step does, and how often a producer hears of one."""

import pytest
from fakes import ends
from sides import begun, blocks, early, finished, request, scheduler, step
from vllm.v1.request import RequestStatus

from kvpipe import Reason, Status, Unavailable


@pytest.mark.parametrize("end, answer", [(ends(1), (99, False)), (ends(1, Status.FAILED, Reason.TIMEOUT), (0, False))])
def test_no_step_waits_for_a_prefill_that_has_not_begun(node, end, answer):
    side, r = scheduler(node, layerwise=True), request(100, transfer_id="t")
    del r.kv_transfer_params["kvpipe"]["key"]
    side.add(r)
    assert side.matched(r, 0) == (None, False)
    step(side)
    assert side.matched(r, 0) == (None, False) and node.told == [("watch", "transfer:t")]
    node.coming = [end]
    step(side)
    assert side.matched(r, 0) == answer


def test_no_step_waits_for_layers_while_others_wait_for_those_of_this_engine(node):
    """Two that hand over to each other would both wait."""
    side, mine, r = scheduler(node, layerwise=True), early(100, "mine", do_remote_decode=True, do_remote_prefill=False), early(100)
    side.add(mine)
    side.allocated(mine, None, 0)
    side.add(r)
    node.coming = [ends(side._operations.last)]
    step(side)
    assert side.matched(r, 0) == (100, True), "it is loaded beside"
    side.allocated(r, blocks(100), 100)
    told = step(side)
    assert list(told.recvs.values()) == ["r"] and not told.loads and [take["layered"] for take in node.taken] == [False]
    mine.status = RequestStatus.FINISHED_ABORTED
    side.finished(mine, ([],))
    after = early(100, "after")
    side.add(after)
    node.coming = [ends(side._operations.last)]
    step(side)
    assert side.matched(after, 0) == (99, False)


def test_a_producer_that_loads_all_the_same_does_it_beside(node):
    """What layer by layer does not work with is allowed it: asynchronous scheduling, other connectors."""
    side, r = scheduler(node, layerwise=True, role="kv_producer"), early(100)
    side.add(r)
    node.coming = [ends(side._operations.last)]
    step(side)
    assert side.matched(r, 0) == (100, True)
    side.allocated(r, blocks(100), 100)
    assert not step(side).loads and [take["layered"] for take in node.taken] == [False]


def test_a_prefill_whose_producer_cannot_be_asked_is_not_waited_for(node, monkeypatch):
    side, r = scheduler(node, layerwise=True), request(100, transfer_id="t")
    del r.kv_transfer_params["kvpipe"]["key"]

    def refuses(*_, **__):
        raise Unavailable("no room for another")

    monkeypatch.setattr(node, "watch", refuses)
    side.add(r)
    assert side.matched(r, 0) == (0, False)


def test_a_daemon_that_stays_away_keeps_no_load_waiting(node, clock):
    """One that is restarted is back by then, and goes on with them."""
    side = scheduler(node)
    begun(side, request(100))
    side._operations.keep(side._operations.tag(), "offered", node.offer("offered", []))
    node.said.clear()
    for later, there in ((0, False), (2.9, False), (0, True), (0.2, False), (2.9, False)):
        clock[0] += later
        node.connected = there
        step(side)
        assert not node.said
    for later in (0.2, 3.1):
        clock[0] += later
        step(side)
        assert node.said == [("cancel", "k")]


def test_nothing_is_loaded_while_the_daemon_is_away(node):
    side, r = scheduler(node), request(100)
    side.add(r)
    for there, heard in ((False, (0, False)), (True, (100, True))):
        node.connected = there
        assert side.matched(r, 0) == heard


def test_a_prefill_is_waited_for_as_long_as_a_load_and_one_that_is_there_kept_for_a_lease(node):
    watch, seconds = node.watch, []
    node.watch = lambda *where, **how: seconds.append(how["timeout"]) or watch(*where, **how)
    side = scheduler(node, layerwise=True, lease=30.0, timeout=5.0)
    side.add(early(100, "early"))
    side.add(request(100))
    assert seconds == [5.0, 30.0]


def test_a_producer_that_has_answered_hears_again_of_a_request_that_waits(node, clock):
    side, watch = scheduler(node, lease=30.0), ("watch", "k")
    side.add(request(100))
    clock[0] += 11
    step(side)
    assert node.told == [watch], "the first is still on its way"
    node.coming = [ends(1)]
    step(side)
    assert node.told == [watch] * 2
    node.coming = [ends(2)]
    step(side)
    assert node.told == [watch] * 2, "just now"


@pytest.mark.parametrize("lease, due", [(30.0, 3.1), (1.5, 0.6)])
def test_a_producer_hears_again_before_a_lease_ends_that_its_daemon_cut(node, clock, lease, due):
    side = scheduler(node, lease=lease)
    side.add(request(100))
    node.coming = [ends(1)]
    for told, later in ((1, due - 0.2), (2, 0.2)):
        clock[0] += later
        step(side)
        assert node.told == [("watch", "k")] * told


@pytest.mark.parametrize("late", [ends(1), ends(1, Status.FAILED, Reason.TIMEOUT)], ids=["it is there", "it is not"])
def test_an_answer_for_a_request_that_is_gone_says_nothing_of_the_next_one_of_its_name(node, late):
    """vLLM leaves names to its clients, if it is told to (VLLM_DISABLE_REQUEST_ID_RANDOMIZATION)."""
    side = scheduler(node, layerwise=True)
    gone = early(100, key="first")
    side.add(gone)
    finished(side, gone)
    again = early(100, key="second")
    side.add(again)
    node.coming = [late]
    step(side)
    assert side.matched(again, 0) == (None, False), "its own prefill has not said whether it begins"
    node.coming = [ends(side._operations.last)]
    step(side)
    assert side.matched(again, 0) == (99, False)
