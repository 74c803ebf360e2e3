"""What the scheduler's side asks for when a request gets its blocks: which tokens, of whom, in how many parts; and when nothing is."""

import pytest
from fakes import chunks, ends, full, window
from sides import begun, blocks, finished, placed, request, scheduler, step

from kvpipe import Status
from kvpipe.vllm.meta import Place, start_of
from kvpipe.vllm.params import Settings


@pytest.mark.parametrize("computed, count, tokens, ids", [
    (0, None, (0, 100), [1, 2, 3, 4, 5, 6, 7]),
    (32, None, (32, 100), [3, 4, 5, 6, 7]),
    (32, 64, (32, 96), [3, 4, 5, 6]),  # the engine computes the rest
])
def test_tokens_are_loaded_from_where_the_engine_has_none_on(node, computed, count, tokens, ids):
    step = begun(scheduler(node), request(100), computed, count)
    assert step.recvs == {2: "r"}
    assert [(take["tokens"], take["blocks"]) for take in node.taken] == [(tokens, [ids])]
    assert node.taken[0]["after"] == start_of(step.number), "until then a step before may use these blocks"


@pytest.mark.parametrize("specs, tokens, computed, loads", [
    ([full()], 103, 0, True),
    ([window(40)], 102, 0, True),
    ([window(40)], 103, 0, False),  # the last sees from 63 on, the next one from 64
    ([window(40)], 103, 96, False),
    ([window(40)], 104, 0, True),
    ([full(), window(40)], 103, 0, False),
    ([window(40)], 39, 0, True),  # they fit into a window
    ([chunks(32)], 96, 0, False),  # the next one sees nothing
    ([chunks(32)], 97, 0, True),
])
def test_a_prompt_is_computed_where_its_last_token_would_look_at_what_windows_have_left(node, specs, tokens, computed, loads):
    side, r = scheduler(node, specs=specs), request(tokens)
    side.add(r)
    assert side.matched(r, computed) == ((tokens - computed, True) if loads else (0, False))


@pytest.mark.parametrize("threshold, computed, loads", [(64, 36, 64), (64, 37, 0), (1, 99, 1), (0, 99, 1), (0, 100, 0)])
def test_what_is_less_than_the_threshold_is_computed(node, threshold, computed, loads):
    side, r = scheduler(node, kv_recompute_threshold=threshold), request(100)
    side.add(r)
    assert side.matched(r, computed) == (loads, loads > 0)


def test_no_token_is_computed_again_where_prefill_has_a_part(node):
    side, r = scheduler(node, specs=[window(40)]), request(120, ours={"tokens": 103})
    side.add(r)
    assert side.matched(r, 0) == (103, True)


@pytest.mark.parametrize("nodes, own, parts, total", [
    (("n", "n"), [0], {}, 1),
    (("n", "far"), [0], {1: 1}, 2),
    (("far", "n"), [0], {0: 1}, 2),
    (("far", "far"), [], {0: 0, 1: 1}, 2),  # a session with no rank on its node can take nothing
])
def test_a_take_has_a_part_for_the_schedulers_node_and_one_for_each_rank_elsewhere(node, nodes, own, parts, total):
    step = begun(placed(scheduler(node, tp=2), *nodes), request(100))
    assert [take["part"] for take in node.taken] == [(part, total) for part in own]
    assert [(load.parts, load.total) for load in step.loads] == ([(parts, total)] if parts else [])
    assert not any(load.awaited or load.timeout != Settings().timeout for load in step.loads), "others compute meanwhile"
    assert list(step.recvs.values()) == ["r"]


def test_what_workers_of_another_connector_tell_is_not_ours(node):
    side = scheduler(node, tp=2)
    side.places({(0, 0): object(), (0, 1): Place("far")})
    assert begun(side, request(100)).loads[0].parts == {1: 1}


@pytest.mark.parametrize("nodes, places, loads", [(1, {}, True), (2, {}, False), (2, {(0, 0): object()}, False),
                                                  (2, {(0, 0): Place("n"), (0, 1): Place("far")}, True)])
def test_nothing_is_handed_over_where_it_is_not_told_which_ranks_are_elsewhere(node, nodes, places, loads):
    """A take would leave out those."""
    side, r = scheduler(node, tp=2, nodes=nodes), request(100)
    side.places(places)
    side.add(r)
    assert side.matched(r, 0) == ((100, True) if loads else (0, False))


@pytest.mark.parametrize("status", [Status.DONE, Status.FAILED, Status.CANCELLED])
def test_workers_that_hear_of_no_end_are_told_how_it_was(node, status):
    side = scheduler(node)
    begun(side, request(100))
    node.coming = [ends(2, status)]
    assert step(side).ended == [(2, status == Status.DONE)]


def test_a_request_that_ends_needs_nothing_any_more(node):
    side, r = placed(scheduler(node, tp=2), "far", "far"), request(100)
    begun(side, r)
    assert finished(side, r) == (False, None)
    assert step(side).cancelled == [2] and ("drop", "k") in node.told


def test_no_load_is_begun_when_the_session_of_a_rank_is_over(node):
    side, r = scheduler(node), request(100)
    side.add(r)
    assert side.matched(r, 0) == (100, True)
    side.lost()
    assert side.matched(r, 0) == (0, False)
    side.allocated(r, blocks(100), 0)
    assert not node.taken and ("drop", "k") in node.told
