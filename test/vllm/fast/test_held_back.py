"""Loads that vLLM holds back, for steps that are under way, after it was told that they come."""

import pytest
from fakes import ends
from sides import blocks, finished, request, scheduler, step

from kvpipe import Reason, Status


def test_blocks_that_come_later_are_loaded_into_as_was_asked(node):
    """vLLM may hold a load back, for steps that are under way, and ask about others meanwhile."""
    side, r, other = scheduler(node), request(100), request(100, "other", ours={"key": "another"})
    side.add(r)
    side.add(other)
    assert side.matched(r, 32) == (68, True)
    step(side)
    assert side.matched(other, 64) == (36, True)
    side.allocated(r, blocks(100), 68)
    side.allocated(other, blocks(100), 36)
    assert [take["tokens"] for take in node.taken] == [(32, 100), (64, 100)]


def held_back(node, **more):
    """Of two requests of one prompt the first has been told that it loads, and has no blocks yet."""
    side, r, twin = scheduler(node, **more), request(100), request(100, "twin")
    side.add(r)
    side.add(twin)
    assert side.matched(r, 0) == (100, True)
    step(side)
    return side, r, twin


@pytest.mark.parametrize("caching, answer", [(True, (None, False)), (False, (0, False))])
def test_a_load_that_is_held_back_is_promised_to_no_other(node, caching, answer):
    side, r, twin = held_back(node, caching=caching)
    assert side.matched(twin, 0) == answer
    side.allocated(r, blocks(100), 100)
    assert side.matched(twin, 0) == answer
    side.ended({"r"}, (), ())
    assert side.matched(twin, 96) == (0, False), "it is there now, and nobody gives it again"
    assert len(node.taken) == 1


def goes(side, r):
    finished(side, r)


def needs_nothing(side, r):
    side.allocated(r, blocks(100), 0)


def finds_enough(side, r):
    assert side.matched(r, 99) == (0, False)


def hears_of_nothing(side, r):
    side._node.coming = [ends(1, Status.FAILED, Reason.NOT_FOUND)]
    step(side)
    assert side.matched(r, 0) == (0, False)


@pytest.mark.parametrize("then", [goes, needs_nothing, finds_enough, hears_of_nothing], ids=lambda then: then.__name__.replace("_", " "))
def test_it_is_no_longer_promised_to_one_that_does_not_load_it(node, then):
    side, r, twin = held_back(node, kv_recompute_threshold=2)
    then(side, r)
    assert side.matched(twin, 0) == (100, True)


def test_a_load_that_was_held_back_until_its_offer_was_gone_fails(node):
    """vLLM has been told that it comes, and waits for it to end."""
    side, r = scheduler(node), request(100)
    side.add(r)
    assert side.matched(r, 0) == (100, True)
    node.coming = [ends(1, Status.FAILED, Reason.NOT_FOUND)]
    step(side)
    side.allocated(r, blocks(100), 100)
    told = step(side)
    assert [told.recvs[tag] for tag, done in told.ended if not done] == ["r"] and not node.taken


def test_a_request_that_cannot_be_told_of_does_not_wait_either(node):
    side, r = scheduler(node), request(100)
    side.add(r)
    side.matched(r, 0)
    r.prompt_embeds = "no tensor"
    with pytest.raises(AttributeError):
        side.allocated(r, blocks(100), 100)
    told = step(side)
    assert [told.recvs[tag] for tag, done in told.ended if not done] == ["r"] and not node.taken
