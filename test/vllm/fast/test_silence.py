"""Nodes that do not answer: nobody waits for one, but who tries whether it is back."""

import pytest
from fakes import ends
from sides import begun, request, scheduler, step

from kvpipe import Reason, Status

#: of a request's watch, and of its take
GONE = [ends(1, Status.FAILED, Reason.TIMEOUT), ends(2, Status.FAILED, Reason.PEER_GONE)]


def next_of(side, clock, answered=False, stepped=True):
    """What the engine hears of one more request for that node, at once and after a moment, in which it answers or not."""
    r = request(100, f"at {clock[0]}", ours={"key": f"k {clock[0]}"})
    side.add(r)
    first = side.matched(r, 0)
    clock[0] += 1
    side._node.coming = [ends(side._operations.last)] if answered else []
    if stepped:
        step(side)
    return first, side.matched(r, 0)


@pytest.mark.parametrize("end", GONE)
def test_nobody_waits_for_a_node_that_does_not_answer(node, clock, end):
    side = scheduler(node)
    begun(side, request(100))
    node.coming = [end]
    step(side)
    assert next_of(side, clock) == ((None, False), (0, False)), "its own watch may yet say that the node is back"
    clock[0] += 60
    assert next_of(side, clock) == ((100, True),) * 2, "somebody has to try"


@pytest.mark.parametrize("stepped", [True, False])
def test_it_is_loaded_from_again_once_it_answers(node, clock, stepped):
    """Also where the answer is heard only when the request is asked about: steps may take long."""
    side = scheduler(node)
    begun(side, request(100))
    node.coming = GONE[1:]
    step(side)
    assert next_of(side, clock, answered=True, stepped=stepped) == ((None, False), (100, True))
    assert next_of(side, clock) == ((100, True),) * 2


def test_a_key_that_is_not_there_says_nothing_of_a_node_that_answers_others(node, clock):
    side = scheduler(node)
    begun(side, request(100))
    next_of(side, clock, answered=True)
    node.coming = GONE[:1]
    step(side)
    assert next_of(side, clock) == ((100, True),) * 2


@pytest.mark.parametrize("where, end", [
    ("other", ends(2, Status.FAILED, Reason.TIMEOUT)),  # it may just have been too slow
    ("n", ends(2, Status.FAILED, Reason.PEER_GONE)),  # an engine beside this one
])
def test_who_only_failed_a_load_is_not_gone(node, clock, where, end):
    side = scheduler(node)
    begun(side, request(100, ours={"node": where}))
    node.coming = [end]
    step(side)
    r = request(100, "next", ours={"node": where, "key": "next"})
    side.add(r)
    assert side.matched(r, 0) == (100, True)


def test_a_prefill_that_does_not_begin_is_not_waited_for_where_nobody_answers(node, clock):
    side, r = scheduler(node, layerwise=True), request(100, transfer_id="t")
    begun(side, request(100, "other"))
    node.coming = GONE[1:]
    step(side)
    del r.kv_transfer_params["kvpipe"]["key"]
    side.add(r)
    assert side.matched(r, 0) == (None, False)
    clock[0] += 1
    assert side.matched(r, 0) == (0, False)
