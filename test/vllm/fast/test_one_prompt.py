"""Requests of one prompt, whose KV their producer gives once: which of them loads it, and when it is kept no longer."""

import pytest
from fakes import ends
from sides import begun, blocks, early, finished, placed, request, scheduler, step

from kvpipe import Reason, Status


@pytest.mark.parametrize("end, dropped", [
    (ends(2), False),
    (ends(2, Status.FAILED, Reason.PEER_GONE), True),
    (ends(2, Status.CANCELLED, Reason.CANCELLED), True),
])
def test_what_will_not_be_loaded_is_not_kept_for_it(node, end, dropped):
    side = scheduler(node)
    begun(side, request(100))
    node.coming = [end]
    step(side)
    assert (("drop", "k") in node.told) == dropped


def test_what_another_request_may_load_is_kept(node):
    side = scheduler(node)
    twin = request(100, "twin")
    begun(side, request(100))
    side.add(twin)
    node.coming = [ends(2, Status.CANCELLED, Reason.CANCELLED)]
    step(side)
    assert ("drop", "k") not in node.told
    finished(side, twin)
    assert ("drop", "k") in node.told


def pair(side, layered):
    """Two requests of one prompt, of which the first loads."""
    r, twin = (early(100, name, key="t") if layered else request(100, name) for name in ("r", "twin"))
    for each in (r, twin):
        side.add(each)
    if layered:
        side._node.coming = [ends(1), ends(2)]
        step(side)
    most, _ = side.matched(r, 0)
    side.allocated(r, blocks(100), most)
    return r, twin


@pytest.mark.parametrize("layered, nodes", [(True, ["n"]), (False, ["n"]), (False, ["far", "far"])],
                         ids=["layer by layer", "beside", "on other nodes"])
@pytest.mark.parametrize("end", ["finds enough", "is gone"])
def test_what_one_of_two_loads_is_kept_when_the_other_needs_nothing_of_it(node, layered, nodes, end):
    side = placed(scheduler(node, tp=len(nodes), layerwise=layered), *nodes)
    _, twin = pair(side, layered)
    if end == "is gone":
        finished(side, twin)
    else:
        side.allocated(twin, blocks(100), 0)
    step(side)
    assert not [told for told in node.told if told[0] == "drop"]


@pytest.mark.parametrize("nodes", [["n"], ["far", "far"]], ids=["here", "on other nodes"])
@pytest.mark.parametrize("end", [Status.DONE, Status.FAILED])
def test_one_of_two_loads_and_the_other_finds_that_in_the_prefix_cache_or_computes(node, nodes, end):
    """Their producer gives it once, and a load fails whose key is gone."""
    side = placed(scheduler(node, tp=len(nodes)), *nodes)
    _, twin = pair(side, layered=False)
    for _ in range(3):
        assert side.matched(twin, 0) == (None, False)
        step(side)
    node.coming = [ends(3, end)]
    step(side)
    assert side.matched(twin, 0) == (None, False), "the engine has not heard of it yet"
    side.ended({"r"}, (), {"r"} if end == Status.FAILED else ())
    assert side.matched(twin, 96) == (0, False)
    side.allocated(twin, blocks(100), 0)
    assert len(node.taken) <= 1 and (("drop", "k") in node.told) == (end == Status.FAILED)


def test_the_other_loads_when_the_one_that_did_is_gone(node):
    side = scheduler(node)
    r, twin = pair(side, layered=False)
    assert side.matched(twin, 0) == (None, False)
    finished(side, r)
    assert side.matched(twin, 0) == (None, False), "it still holds the producer's one place"
    node.coming = [ends(3, Status.CANCELLED, Reason.CANCELLED)]
    step(side)
    side.ended({"r"}, (), {"r"})
    assert side.matched(twin, 0) == (100, True) and ("drop", "k") not in node.told


def test_the_other_computes_where_there_is_no_prefix_cache(node):
    side = scheduler(node, caching=False)
    _, twin = pair(side, layered=False)
    assert side.matched(twin, 0) == (0, False)


def test_what_one_of_two_loads_layer_by_layer_the_other_does_not_load_again(node):
    side = scheduler(node, layerwise=True)
    _, twin = pair(side, layered=True)
    assert side.matched(twin, 0) == (None, False)
    assert [load.request for load in step(side).loads] == ["r"]
    assert side.matched(twin, 96) == (0, False), "by now it is there, or has failed"
