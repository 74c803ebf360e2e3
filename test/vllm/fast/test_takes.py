"""What the scheduler's side asks for when a request gets its blocks: which tokens, of whom, in how many parts."""

import base64
import pickle
import types

import pytest
from fakes import Session, cache, chunks, ends, full, window
from vllm.v1.request import RequestStatus

from kvpipe import Reason, Status, Unavailable
from kvpipe.vllm import requests
from kvpipe.vllm.loads import Loads
from kvpipe.vllm.meta import Load, Place
from kvpipe.vllm.params import Settings
from kvpipe.vllm.scheduler import Scheduler

SLOTS = 16
BLOCK = 1 << 16  # bytes
TOKEN = b"0123456789abcdef"


@pytest.fixture
def node():
    with Session() as session:
        yield session


def scheduler(node, tp=1, policy="recompute", flight=1, specs=(), nodes=1, caching=True, role="kv_both", v2=False,
              **settings):
    """One of an engine whose attention has tokens where they are in blocks."""
    config = types.SimpleNamespace(
        device_config=types.SimpleNamespace(device_type="other"),
        kv_transfer_config=types.SimpleNamespace(engine_id="e", kv_role=role, kv_load_failure_policy=policy),
        parallel_config=types.SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=1, nnodes_within_dp=nodes),
        scheduler_config=types.SimpleNamespace(async_scheduling=flight > 1),
        cache_config=types.SimpleNamespace(enable_prefix_caching=caching), use_v2_model_runner=v2)
    return Scheduler(node, config, cache(*specs, block=BLOCK), Settings(**{"kv_recompute_threshold": 1, "log_peers": False, **settings}))


def request(tokens, name="r", **more):
    ours = {"v": 1, "node": "other", "key": "k", "token": base64.urlsafe_b64encode(TOKEN).decode(), **more.pop("ours", {})}
    return types.SimpleNamespace(
        request_id=name, num_prompt_tokens=tokens, num_tokens=tokens, all_token_ids=list(range(tokens)), num_preemptions=0, status=None,
        lora_request=None, cache_salt=None, prompt_embeds=None, mm_features=[], trace_headers=None,
        kv_transfer_params={"do_remote_prefill": True, "kvpipe": ours, **more})


def blocks(tokens):
    return types.SimpleNamespace(get_block_ids=lambda: (list(range(1, 1 + -(-tokens // SLOTS))),))


def step(side):
    return side.step(types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=None))


def begun(side, r, computed=0, count=None):
    """The request is asked about and gets blocks, for all that can be loaded or less."""
    side.add(r)
    most, _ = side.matched(r, computed)
    side.allocated(r, blocks(r.num_prompt_tokens), most if count is None else count)
    return step(side)


@pytest.mark.parametrize("computed, count, tokens, ids", [
    (0, None, (0, 100), [1, 2, 3, 4, 5, 6, 7]),
    (32, None, (32, 100), [3, 4, 5, 6, 7]),
    (32, 64, (32, 96), [3, 4, 5, 6]),  # the engine computes the rest
])
def test_tokens_are_loaded_from_where_the_engine_has_none_on(node, computed, count, tokens, ids):
    step = begun(scheduler(node), request(100), computed, count)
    assert step.recvs == {2: "r"}
    assert [(take["tokens"], take["blocks"]) for take in node.taken] == [(tokens, [ids])]


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


def test_no_token_is_computed_again_where_prefill_has_a_part(node):
    side, r = scheduler(node, specs=[window(40)]), request(120, ours={"tokens": 103})
    side.add(r)
    assert side.matched(r, 0) == (103, True)


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


def early(tokens, name="r", key=None, **more):
    """A request of which a proxy has sent each engine its half at the same time."""
    r = request(tokens, name, transfer_id=key or f"t {name}", **more)
    del r.kv_transfer_params["kvpipe"]["key"]
    return r


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


def test_blocks_that_do_not_come_back_are_waited_for_a_moment(node, monkeypatch):
    """A step that waits for them computes nothing, and a daemon may stand still."""
    clock = [0.0]
    monkeypatch.setattr("kvpipe.vllm.offers.time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    offers, running = (side := scheduler(node)).offers, side._operations

    def keep():
        running.keep(running.tag(), "r", node.offer("k", []), blocks=3)

    keep()
    assert offers.give_back() and node.said == [("withdraw", "k")]
    clock[0] = 0.9
    assert offers.give_back()
    clock[0] = 1.1
    assert not offers.give_back()
    keep()
    assert offers.give_back(), "the next ones are waited for likewise"
    running.running.clear()
    step(side)
    assert not offers.give_back() and not offers._asked_back


def test_a_producer_that_has_answered_hears_again_of_a_request_that_waits(node, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("kvpipe.vllm.waiting.time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    side, watch = scheduler(node, lease=30.0), ("watch", "k")
    side.add(request(100))
    clock[0] = 11
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


#: of a request's watch, and of its take
GONE = [ends(1, Status.FAILED, Reason.TIMEOUT), ends(2, Status.FAILED, Reason.PEER_GONE)]


@pytest.fixture
def clock(monkeypatch):
    now, told = [100.0], types.SimpleNamespace(monotonic=lambda: now[0])
    for module in ("operations", "silence", "waiting"):
        monkeypatch.setattr(f"kvpipe.vllm.{module}.time", told)
    return now


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


def placed(side, *nodes):
    side.places({(0, tp): Place(name) for tp, name in enumerate(nodes)})
    return side


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


@pytest.mark.parametrize("bad, failed, left", [({3}, (), True), ((), {"r"}, True), ({99}, {"other"}, False)])
def test_what_failed_on_a_rank_elsewhere_alone_is_not_kept(node, bad, failed, left):
    """The part that was taken here is done: only the workers' word says that it was for nothing."""
    side = placed(scheduler(node, tp=2), "n", "far")
    begun(side, request(100))
    node.coming = [ends(2), ends(2, Status.RELEASED)]
    step(side)
    side.ended((), bad, failed)
    assert (("drop", "k") in node.told, step(side).cancelled) == ((True, [2]) if left else (False, []))
    side.ended({"r"}, (), ())
    assert not side._ranks.takes and node.told.count(("drop", "k")) == left
    counted = side.counts().data
    assert (counted["failed"], len(counted["load_seconds"])) == (({"elsewhere": 1}, 0) if left else ({}, 1))


@pytest.mark.parametrize("first", ["here", "elsewhere"])
def test_a_load_with_parts_elsewhere_counts_once_all_are_there_with_the_bytes_of_all(node, first):
    side = placed(scheduler(node, tp=4), "n", "far", "far", "far")
    begun(side, request(100))
    if first == "elsewhere":
        side.ended({"r"}, (), ())
        step(side)
        assert side.counts() is None
    node.coming = [ends(2)._replace(bytes=50), ends(2, Status.RELEASED)]
    step(side)
    if first == "here":
        assert side.counts() is None
        side.ended({"r"}, (), ())
    assert side.counts().data["load_bytes"] == [200]


def test_one_that_fails_here_counts_once_with_its_own_reason(node):
    side = placed(scheduler(node, tp=2), "n", "far")
    begun(side, request(100))
    node.coming = [ends(2, Status.FAILED, Reason.PEER_GONE)]
    step(side)
    side.ended({"r"}, {3}, {"r"})
    assert side.counts().data["failed"] == {"peer_gone": 1} and not side._operations.whole._open


def finished(side, r):
    r.status = RequestStatus.FINISHED_ABORTED
    return side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))


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


def prefilled(side, name="p"):
    r = request(100, name)
    r.kv_transfer_params = {"do_remote_decode": True}
    side.add(r)
    side.step(types.SimpleNamespace(num_scheduled_tokens={name: 100}, preempted_req_ids=None))
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
    return side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))


def test_nothing_is_offered_when_the_session_of_a_rank_is_over(node):
    side = scheduler(node)
    assert prefilled(side)[0] and len(node.offered) == 1
    side.lost()
    assert prefilled(side, "q") == (False, None) and len(node.offered) == 1


def test_nothing_is_offered_that_cannot_be_answered(node, monkeypatch):
    side = scheduler(node)
    monkeypatch.setattr("kvpipe.vllm.offers.wire.outgoing", lambda **_: {}["nothing"])
    with pytest.raises(KeyError):
        prefilled(side)
    assert not node.offered and not step(side).sends


def preempted(side):
    """The tag of a request that is offered layer by layer, and what its step is told; that step writes its blocks."""
    r = early(100, "p", key="t", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    (tag, running), = side._operations.running.items()
    running.operation._end = ends(tag, Status.CANCELLED, released=False)
    return tag, types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids={"p"})


def test_nobody_waits_for_an_offer_that_has_no_blocks_yet(node):
    """Another connector may load the beginning: vLLM waits for that, and would free the request twice."""
    side, r = scheduler(node, layerwise=True), early(100, "p", do_remote_decode=True, do_remote_prefill=False)
    side.add(r)
    side.allocated(r, None, 0)
    assert finished(side, r) == (False, None)
    assert node.said == [("withdraw", "transfer:t p")] and not step(side).sends


@pytest.mark.parametrize("late", [0, 2])
def test_blocks_of_a_preempted_request_are_written_once_nothing_reads_them(node, late):
    side = scheduler(node, layerwise=True)
    tag, output = preempted(side)
    heard = iter([*[[]] * late, [side._operations.running[tag].operation._end], [ends(tag, Status.RELEASED)]])
    node.poll = lambda: next(heard, [])
    side.step(output)
    assert node.said == [("withdraw", "transfer:t")] and list(heard) == [] and tag not in side._operations.running


def test_so_they_are_though_something_else_fails(node, monkeypatch):
    side = scheduler(node, layerwise=True)
    tag, output = preempted(side)
    node.coming = [ends(tag, Status.CANCELLED)]
    monkeypatch.setattr(side._operations, "collect", {}.__getitem__)
    side.step(output)
    assert node.said == [("withdraw", "transfer:t")] and tag not in side._operations.running


@pytest.mark.parametrize("share, kept", [(0.09, True), (0.08, False)])
def test_what_windows_have_left_is_not_counted_as_kept(node, share, kept):
    """Of a hundred blocks nine are held, at the places of fourteen."""
    side, r = scheduler(node, specs=[full(), window(20)], decode_offer_share=share), request(100)
    r.kv_transfer_params = {"kvpipe": {"v": 1, "keep": 60}}
    side.add(r)
    r.status, r.num_computed_tokens = RequestStatus.FINISHED_STOPPED, 100
    assert side.finished(r, (list(range(1, 8)), [0] * 5 + [8, 9]))[0] == kept
    assert [running.blocks for running in side._operations.running.values()] == [9] * kept


def test_a_reset_cache_offers_nothing_of_before(node):
    side = scheduler(node)
    prefilled(side)
    side.offers.reset()
    assert node.said == [("withdraw", node.offered[0])]


def test_a_load_that_is_refused_at_once_counts(node):
    side = scheduler(node)
    node.refuses = Unavailable("no")
    begun(side, request(100))
    assert side.counts().data["failed"] == {"refused": 1}


class Awaited:
    """A take of a worker that has ended."""

    def __init__(self, end):
        self.completion = end

    def wait(self, timeout):
        if self.completion.status != Status.DONE:
            raise self.completion.error()

    def cancel(self, timeout):
        pass

    def wait_released(self, timeout):
        pass


def layers_of(node, rank, end):
    """(what a rank of two counts of a load layer by layer whose part ended so, the blocks that failed, of whom it was)"""
    met, load = [], Load(7, "r", "k", "other", TOKEN, None, b"", [[1, 2]], 0, 32, 0, {0: 0, 1: 1}, 2, 30.0, True)
    node.take = lambda *_, **options: Awaited(end)
    loads = Loads(node, rank, lambda peer, rate: met.append(peer))
    loads.begin([load])
    loads.finish()
    return loads.counts.take(), loads.bad, met


DONE, LATE, GONE_BY = ends(7)._replace(bytes=50), ends(7, Status.FAILED, Reason.TIMEOUT), ends(7, Status.FAILED, Reason.PEER_GONE)


@pytest.mark.parametrize("parts, sizes, failed", [
    ([DONE, DONE], [100], {}),
    ([LATE, LATE], [], {"timeout": 1}),
    ([DONE, LATE], [], {"timeout": 1}),
    ([LATE, DONE], [], {"timeout": 1}),
    ([LATE, GONE_BY], [], {"timeout": 1}),
])
def test_a_load_that_a_step_waits_for_counts_once_and_as_failed_if_any_part_did(node, parts, sizes, failed):
    first, second = (layers_of(node, rank, end)[0] for rank, end in enumerate(parts))
    counted = pickle.loads(pickle.dumps(first)).aggregate(pickle.loads(pickle.dumps(second))).to_dict()
    assert (counted["load_bytes"], len(counted["load_seconds"]), counted["failed"]) == (sizes, len(sizes), failed)


@pytest.mark.parametrize("rank, end, bad, met", [(0, DONE, set(), ["other"]), (1, DONE, set(), []), (0, LATE, {1, 2}, [])])
def test_one_rank_says_of_which_node_layers_came(node, rank, end, bad, met):
    assert layers_of(node, rank, end)[1:] == (bad, met)


@pytest.mark.parametrize("name, header, trace", [
    ("r", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ("r", "00-" + "\x07\u00e9\ud800" * 100 + "-1-1", "\u00e9" * 32),
    ("a\nb\x00" + "x" * 100, "", "ab" + "x" * 62),
])
def test_a_trace_is_one_that_daemons_take(name, header, trace):
    assert requests.trace(types.SimpleNamespace(request_id=name, trace_headers={"traceparent": header})) == trace


@pytest.mark.parametrize("unit, ends", [(32, [0, 32, 32, 64]), (1, [0, 1, 32, 33])])
def test_lists_end_with_the_last_of_their_units(unit, ends):
    assert [requests.Blocks([0], [32], unit).end(tokens) for tokens in (0, 1, 32, 33)] == ends
