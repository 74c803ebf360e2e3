"""What a worker and the scheduler make of the ends that they hear of, in orders that daemons seldom give them."""

import logging
import types
from unittest import mock

import caches
import pytest
import sides
from fakes import cache, ends, full, window

import kvpipe
from kvpipe import Reason, Status, Unavailable
from kvpipe.completion import Run
from kvpipe.vllm import bell, compat
from kvpipe.vllm.connector import KVPipeConnector
from kvpipe.vllm.guard import kept_in
from kvpipe.vllm.keyed import Keyed
from kvpipe.vllm.layout import Heads
from kvpipe.vllm.memory import stacked
from kvpipe.vllm.meta import QUIET, Load, Lost, Step, end_of, layer_of, start_of
from kvpipe.vllm.operations import Operations
from kvpipe.vllm.params import Settings, Source, names_source
from kvpipe.vllm.peers import Peers
from kvpipe.vllm.requests import Blocks
from kvpipe.vllm.scheduler import Scheduler
from kvpipe.vllm.stats import Counts
from kvpipe.vllm.waiting import Waiting
from kvpipe.vllm.worker import Worker

LOAD = Load(7, "r", "k", "other", b"t" * 16, None, b"", [[1, 2]], 0, 64, start_of(1), {1: 1}, 2, 30.0, False)


@pytest.fixture
def worker(node):
    return Worker(node, None, cache(), Settings(), Heads(1, 2))


def look(worker, step, finished=()):
    worker.begin(step)
    worker.saved()
    return worker.results(step, set(finished))


@pytest.mark.parametrize("done", [True, False])
def test_the_scheduler_does_not_end_what_a_rank_takes_by_itself(node, worker, done):
    look(worker, Step(1, last=7, recvs={7: "r"}, loads=[LOAD]))
    look(worker, Step(2, last=7, ended=[(7, done)]))
    assert not look(worker, Step(3, last=7)).finished_recving, "its bytes may still land"
    node.coming = [ends(7)]
    out = look(worker, Step(4, last=7))
    assert (out.finished_recving, out.failed_recving) == ({"r"}, set())
    assert 7 not in worker._loads


def test_a_rank_on_another_node_takes_from_where_the_kv_is(node, worker):
    look(worker, Step(1, last=7, recvs={7: "r"}, loads=[LOAD]))
    assert ("take", "other") in node.said


@pytest.mark.parametrize("tp, stage, rank", [(0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 3)])
def test_ranks_are_counted_stage_by_stage(node, tp, stage, rank):
    worker = Worker(node, None, cache(), Settings(), Heads(tp, 2), stage)
    look(worker, Step(1, last=7, recvs={7: "r"}, loads=[LOAD._replace(parts={rank: 5}, total=6)]))
    assert [take["part"] for take in node.taken] == [(5, 6)]


def test_nor_once_it_was_cancelled(node, worker):
    look(worker, Step(1, last=7, recvs={7: "r"}, loads=[LOAD]))
    look(worker, Step(2, last=7, ended=[(7, False)], cancelled=[7]))
    assert ("cancel", "k") in node.said
    assert not look(worker, Step(3, last=7)).finished_recving
    node.coming = [ends(7, Status.CANCELLED, Reason.CANCELLED)]
    assert look(worker, Step(4, last=7)).failed_recving == {"r"}


def test_the_scheduler_ends_what_this_rank_did_not_hear_of(worker):
    look(worker, Step(1, last=7, recvs={7: "r"}))
    assert not look(worker, Step(2, last=7, ended=[(7, False)])).finished_recving, "one look later"
    assert look(worker, Step(3, last=7)).failed_recving == {"r"}


def test_a_look_without_a_step_hears_of_ends_too(node, worker):
    look(worker, Step(1, last=7, recvs={7: "r"}))
    node.coming = [ends(7)]
    assert worker.results(None, set()).finished_recving == {"r"}


@pytest.mark.parametrize("last", [9, 1], ids=["a tag that steps have passed", "one after an older that no step has named"])
def test_what_was_heard_before_a_step_named_it_counts_first(node, worker, last):
    """A load that fails, and whose memory is free only later, is none that succeeded."""
    look(worker, Step(1, last=0, sends={0: "open"}))
    node.coming = [ends(9, Status.FAILED, Reason.PEER_GONE, released=False)]
    assert not look(worker, Step(2, last=0)).finished_recving
    node.coming = [ends(9, Status.RELEASED)]
    out = look(worker, Step(3, last=last, recvs={9: "r"}))
    assert (out.finished_recving, out.failed_recving) == ({"r"}, {"r"})


def test_ends_of_tags_that_no_step_will_name_are_forgotten(node, worker):
    look(worker, Step(1, last=0, sends={0: "open"}))
    node.coming = [ends(5), ends(6)]
    look(worker, Step(2, last=0))
    assert list(worker._early) == [5, 6]
    look(worker, Step(3, last=5))
    assert list(worker._early) == [6]


def test_offers_that_no_step_names_leave_room_for_others(near):
    """They end before their first block, as when requests are aborted while they wait for another connector's load. Each rank hears of them."""
    with kvpipe.connect(near.socket, engine_id="e", cq_entries=16) as rank, kvpipe.connect(near.socket, engine_id="e", role="scheduler") as node:
        rank.set_layout([caches.view(rank.alloc(32 * caches.BLOCK))], caches.FINGERPRINT)
        side, worker = sides.scheduler(node, layerwise=True, role="kv_producer"), Worker(rank, None, cache(), Settings(layerwise=True), Heads(0, 1))
        for name in map(str, range(20)):
            r = sides.early(100, name, do_remote_decode=True, do_remote_prefill=False)
            side.add(r)
            side.allocated(r, sides.blocks(100), 0)
            (running,) = side._operations.running.values()
            sides.finished(side, r)
            while side._operations.running:
                bell.sleep(node, 10)
                look(worker, sides.step(side))
            assert running.operation.completion.status == Status.CANCELLED, running.operation.completion.message


@pytest.mark.parametrize("specs, by_blocks", [
    ([full()], True),
    ([full(sliding_window=40)], True),  # vLLM keeps all blocks
    ([window(40)], False),
    ([full(), window(40)], False),
], ids=["full attention", "full, of a window", "a window", "both"])
def test_a_failure_is_told_by_blocks_where_all_before_them_are_there(node, specs, by_blocks):
    """vLLM computes from the first of them on. Else all of the request is computed again."""
    worker = Worker(node, None, cache(*specs), Settings(), Heads(0, 1))
    look(worker, Step(1, last=7, recvs={7: "r"}))
    node.coming = [ends(7, Status.FAILED, Reason.PEER_GONE)._replace(failed=(Run(0, 5, 8),))]
    out = look(worker, Step(2, last=7))
    assert out.finished_recving == {"r"}
    assert (worker.failed_blocks(), out.failed_recving) == (({5, 6, 7}, set()) if by_blocks else (set(), {"r"}))


def test_nor_is_one_that_does_not_say_which_blocks_failed(node, worker):
    look(worker, Step(1, last=7, recvs={7: "r"}))
    node.coming = [ends(7, Status.FAILED, Reason.PEER_GONE)._replace(failed=(Run(0, 5, 8), Run(0, 9, (1 << 32) - 1)))]
    assert look(worker, Step(2, last=7)).failed_recving == {"r"} and not worker.failed_blocks()


@pytest.mark.parametrize("names, said", [
    ({}, []),
    ({"recvs": {1: "r"}}, [start_of(3)]),
    ({"sends": {1: "r"}}, [start_of(3)]),
    ({"offered": True}, [end_of(3)]),
], ids=["nobody", "a take", "an offer of what an earlier step computed", "an offer of what it computes"])
def test_a_step_says_how_far_it_is_when_somebody_waits_for_it(node, worker, names, said):
    look(worker, Step(3, last=1, **names))
    assert node.said == [("progress", n) for n in said]


def test_an_offer_that_fails_spoils_no_blocks(node, worker):
    look(worker, Step(1, last=7, sends={7: "s"}))
    node.coming = [ends(7, Status.FAILED, Reason.PEER_GONE)._replace(failed=(Run(0, 5, 8),))]
    assert look(worker, Step(2, last=7), ["s"]).finished_sending == {"s"} and not worker.failed_blocks()


@pytest.fixture
def naps(monkeypatch):
    """How long the worker has slept, each time, in milliseconds."""
    slept = []
    poll = types.SimpleNamespace(register=lambda *_: None, poll=slept.append)
    monkeypatch.setattr("kvpipe.vllm.bell.select", types.SimpleNamespace(poll=lambda: poll, POLLIN=1))
    return slept


def without_a_forward_pass(worker, step):
    worker.begin(step)
    worker.begin(step, computes=False)
    return worker.results(step, set())


def test_a_step_that_computes_nothing_waits_a_moment_for_an_end(node, worker, naps):
    without_a_forward_pass(worker, Step(1, last=5, recvs={4: "r"}, sends={5: "s"}))
    assert naps == [3]
    node.coming = [ends(4)]
    assert without_a_forward_pass(worker, Step(2, last=5)).finished_recving == {"r"}
    assert naps == [3], "it was there already"
    without_a_forward_pass(worker, Step(3, last=5))
    assert naps == [3, 1], "nobody is served by the end of an offer"


def test_no_other_step_waits(node, worker, naps):
    look(worker, Step(1, last=4, recvs={4: "r"}))
    node.coming = [ends(4)]
    look(worker, Step(2, last=4))
    without_a_forward_pass(worker, Step(3, last=4))
    look(worker, Step(4, last=5, sends={5: "s"}))
    node.coming = [ends(5)]
    look(worker, Step(5, last=5))
    assert not without_a_forward_pass(worker, Step(6, last=5)).finished_sending
    assert not naps, "it computes, or nothing is open"


@pytest.mark.parametrize("context, more, computes", [
    (None, {}, False),
    ({}, {}, True),
    (None, {"attn_metadata": {}}, True),  # full CUDA graphs run outside of a forward context
    (None, {"num_tokens": 4, "request_ids": ["r"]}, True),  # Model Runner V2, behind its forward pass
])
def test_a_step_computes_where_attention_has_something_to_do(context, more, computes):
    connector = KVPipeConnector.__new__(KVPipeConnector)
    connector._worker, connector._connector_metadata = mock.Mock(), Step(1)
    connector.start_load_kv(types.SimpleNamespace(attn_metadata=context), **more)
    assert connector._worker.mock_calls == [mock.call.begin(Step(1), computes), mock.call.load()]


def test_a_send_that_was_held_back_is_told_though_nothing_else_happens(node, worker):
    node.coming = [ends(4)]
    assert not look(worker, Step(1, last=4, sends={4: "r"})).finished_sending
    assert look(worker, Step(2, last=4), ["r"]).finished_sending == {"r"}


@pytest.mark.parametrize("said", ["as it says how far it is", "as it looks"])
def test_a_worker_whose_session_is_over_says_so_and_holds_nobody_up(node, worker, said):
    look(worker, Step(1, last=7, recvs={7: "r"}, sends={6: "s"}))
    assert worker.lost is None
    def over(*_):
        raise Unavailable("the session is over")

    node.poll = node.fileno = node.progress = over
    if said == "as it says how far it is":
        worker.begin(Step(2, last=7, offered=True))
        worker.saved()
        assert worker.lost
    worker.begin(Step(3, last=7), computes=False)
    out = worker.results(Step(3, last=7), {"s"})
    assert (out.finished_sending, out.finished_recving, out.failed_recving) == ({"s"}, {"r"}, {"r"})
    assert isinstance(worker.lost.aggregate(worker.lost), Lost)


def test_nor_does_one_that_counts_its_loads(node):
    """How they ended is not to be had any more."""
    class Gone:
        @property
        def completion(self):
            raise Unavailable("the session is over")

    node.take, worker = lambda *_, **__: Gone(), Worker(node, None, cache(), Settings(), Heads(1, 2))
    look(worker, Step(1, last=7, recvs={7: "r"}, loads=[LOAD._replace(parts={0: 1, 1: 0})]))
    node.poll = lambda: (_ for _ in ()).throw(Unavailable("the session is over"))
    assert look(worker, Step(2, last=7)).failed_recving == {"r"} and worker.counts() is None


def test_what_failed_is_forgotten_with_its_load(node, worker):
    """Of what a daemon still has to say when it is replaced, nothing is heard."""
    look(worker, Step(1, last=7, recvs={7: "r"}))
    node.coming = [ends(7, Status.FAILED, Reason.PEER_GONE, released=False)]
    look(worker, Step(2, last=7, ended=[(7, False)]))
    assert look(worker, Step(3, last=7)).failed_recving == {"r"}
    assert not worker._failed


@pytest.mark.parametrize("layerwise", [True, False])
def test_vllms_word_on_a_layer_counts_with_layerwise_alone(layerwise):
    connector = KVPipeConnector.__new__(KVPipeConnector)
    connector._layerwise, connector._layer_saved, connector._wait_layer = layerwise, mock.Mock(), mock.Mock()
    connector.save_kv_layer("layer 1", None, None)
    connector.wait_for_layer_load("layer 2")
    told = [mock.call("layer 1")], [mock.call("layer 2")]
    assert (connector._layer_saved.mock_calls, connector._wait_layer.mock_calls) == (told if layerwise else ([], []))


def test_what_either_side_is_told_is_of_the_types_that_vllm_asks_for():
    assert all(isinstance(step, compat.Metadata) for step in (QUIET, Step(1))) and isinstance(Lost(), compat.WorkerMetadata)


def test_a_worker_says_nothing_before_the_first_step(node, worker):
    worker.saved()
    worker.layer_saved("layer 0")
    assert not worker.offered and node.said == []


def test_what_a_step_begins_is_begun_before_its_inputs_are_made_ready():
    """By the hook that vLLM calls first. A quiet step has nothing to begin there."""
    connector = KVPipeConnector.__new__(KVPipeConnector)
    connector._begin = mock.Mock()
    connector.handle_preemptions(QUIET)
    connector._begin.assert_not_called()
    connector.handle_preemptions(Step(1))
    connector._begin.assert_called_once_with(Step(1))


@pytest.mark.parametrize("received, bad, failed", [({"r"}, set(), None), (None, {3}, None), (None, set(), {"r"}), (None, set(), None)])
def test_the_scheduler_hears_what_workers_say_if_they_say_anything(received, bad, failed):
    """One may say that a request failed long before all are done with it."""
    connector = KVPipeConnector.__new__(KVPipeConnector)
    connector._scheduler = mock.Mock()
    said = {"finished_recving": received, "invalid_block_ids": bad, "failed_recving": failed}
    connector.update_connector_output(types.SimpleNamespace(**said, kv_connector_worker_meta=None))
    assert connector._scheduler.mock_calls == ([mock.call.ended(received, bad, failed)] if received or bad or failed else [])


def test_a_rank_whose_session_is_over_is_heard_of_by_the_scheduler():
    worker, side = KVPipeConnector.__new__(KVPipeConnector), KVPipeConnector.__new__(KVPipeConnector)
    worker._worker, side._scheduler = mock.Mock(lost=Lost()), mock.Mock()
    told = worker.build_connector_worker_meta()
    side.update_connector_output(types.SimpleNamespace(
        finished_recving=None, invalid_block_ids=set(), failed_recving=None, kv_connector_worker_meta=told))
    assert isinstance(told, Lost) and side._scheduler.mock_calls == [mock.call.lost()]


def test_both_sides_say_what_they_have_counted():
    connector = KVPipeConnector.__new__(KVPipeConnector)
    connector._side = mock.Mock()
    assert connector.get_kv_connector_stats() is connector._side.counts.return_value


@pytest.mark.parametrize("extra, piecewise", [({}, False), ({"layerwise": False}, False), ({"layerwise": True}, True)])
def test_layers_can_be_told_apart_only_where_graphs_are_cut_between_them(extra, piecewise):
    assert KVPipeConnector.requires_piecewise_for_cudagraph(extra) is piecewise


@pytest.fixture
def operations(node):
    return Operations(node, Counts(), lambda peer, rate: None, 30.0)


def test_loads_may_be_stopped_after_the_session(node, operations):
    tag = operations.tag()
    operations.keep(tag, "r", node.take("k"))
    node.poll = lambda: (_ for _ in ()).throw(Unavailable("the session is over"))
    assert operations.collect() == [(tag, False)]
    operations.stop_load("r")


def test_what_fails_while_one_end_is_heard_costs_no_other(node):
    """Nobody would say them again: a request whose watch is never answered waits for ever."""
    operations, heard = Operations(node, Counts(), lambda peer, rate: {}["no such peer"], 30.0), []
    source = Source("other", "k", b"t" * 16, None, 0)
    tag, watch = operations.tag(), operations.tag() + 1
    operations.keep(tag, "r", node.take("k", tag=tag), source=source)
    operations.watch(source, 30.0, heard.append)
    node.coming = [ends(tag), ends(watch)]
    assert operations.collect() == [(tag, True)] and not operations.running and [c.tag for c in heard] == [watch]


def test_a_load_is_none_the_worse_for_a_thread_that_cannot_be_started(monkeypatch):
    def refuses(**_):
        raise RuntimeError("can't start new thread")

    told = []
    monkeypatch.setattr("kvpipe.vllm.peers.threading", types.SimpleNamespace(Thread=refuses))
    monkeypatch.setattr("kvpipe.vllm.peers.logger", types.SimpleNamespace(info=lambda words, *values: told.append(words % values)))
    peers = Peers("n", "", True)
    peers.met("other", 1e9)
    peers.met("other", 2e9)
    assert told == ['kvpipe: other -> n: first load at 1 GB/s; "kvpipectl explain other" says by which transport (can\'t start new thread)']


def test_an_operation_is_asked_once_to_end(node, operations):
    operations.keep(operations.tag(), "r", node.take("k"))
    operations.stop_load("r")
    operations.stop_load("r")
    assert node.said == [("take", None), ("cancel", "k")]


@pytest.mark.parametrize("end, level", [
    (ends(1, Status.FAILED, Reason.PEER_GONE), logging.WARNING), (ends(1, Status.CANCELLED, Reason.CANCELLED), logging.DEBUG)])
def test_only_loads_that_failed_are_worth_a_warning(node, operations, monkeypatch, end, level):
    levels = []
    monkeypatch.setattr(compat.logger, "log", lambda level, *_: levels.append(level))
    operations.keep(operations.tag(), "r", node.take("k"))
    operations.running[1].operation._end = end
    node.coming = [end]
    operations.collect()
    assert levels == [level]


@pytest.mark.parametrize("blocks, level", [(0, logging.INFO), (7, logging.DEBUG)], ids=["for decode", "for a turn that may not come"])
def test_an_offer_that_nobody_came_for_is_worth_less(node, operations, monkeypatch, blocks, level):
    levels, end = [], ends(1, Status.FAILED, Reason.TIMEOUT)
    monkeypatch.setattr(compat.logger, "log", lambda level, *_: levels.append(level))
    operations.keep(operations.tag(), "r", node.offer("k", []), blocks=blocks)
    operations.running[1].operation._end, node.coming = end, [end]
    operations.collect()
    assert levels == [level]


def test_asking_to_keep_says_nothing_of_where_kv_is():
    assert not names_source({"kvpipe": {"v": 1, "keep": 60}}) and not names_source({}) and not names_source({"kvpipe": 3})
    assert names_source({"kvpipe": {"v": 1, "node": "n"}})


@pytest.fixture
def scheduler(node, operations):
    scheduler = Scheduler.__new__(Scheduler)
    scheduler._step, scheduler._last, scheduler._next, scheduler._asking, scheduler._tables = 0, 0, Step(1), None, None
    scheduler._waiting = Waiting(node, operations, Settings())
    scheduler._operations, scheduler._node, scheduler._settings = operations, node, Settings()
    scheduler._at_once, scheduler.offers, scheduler._blocks, scheduler._room = mock.Mock(), mock.Mock(), Blocks([0], [16], 1), None
    scheduler._promised, scheduler._loading, scheduler._at_once.step.return_value = Keyed(), Keyed(), []
    scheduler._loaded = {}
    scheduler.offers.layered.first.return_value = 0
    return scheduler


def test_a_step_goes_out_with_what_it_names_though_something_failed(scheduler):
    scheduler._next.sends[4] = "r"
    scheduler.offers.step.side_effect = KeyError("r")
    assert scheduler.step(None).sends == {4: "r"}


def test_a_step_is_quiet_until_there_is_something_to_say_or_a_tag_to_forget(scheduler):
    assert scheduler.step(None) is QUIET and scheduler.step(None) is QUIET
    tag = scheduler._operations.tag()
    told = scheduler.step(None)
    assert (told.number, told.last) == (3, tag), "early ends of that tag concern nobody"
    assert scheduler.step(None) is QUIET
    scheduler._next.sends[2] = "r"
    assert scheduler.step(None).number == 5


def test_a_layer_is_written_once_all_that_come_before_it_are_and_all_of_its_tensors(node, worker):
    """vLLM's names may have one number twice, as where an encoder is run before the model."""
    worker.memory.layers = {"encoder.0": 0, "encoder.1": 1, "model.0": 0, "model.1": 1, "model.2": 2}
    worker.memory.stack = stacked(None, worker.memory.layers)
    for number in 1, 2:
        worker.begin(Step(number, offered=True))
        for name in worker.memory.layers:
            worker.layer_saved(name)
            written = int(name[-1]) + 1 if name.startswith("model") else 0
            assert [n for _, n in node.said] == [layer_of(number, i + 1) for i in range(written)], name
        node.said.clear()


def test_a_layer_waits_for_no_word_that_vllm_does_not_say(node, worker):
    """Of an index beside a layer's KV it says nothing. Attention looks at it, so it is written before."""
    layers = {"model.0.attn": 0, "model.0.indexer.k_cache": 0, "model.1.attn": 1, "model.1.indexer.k_cache": 1, "model.2.indexer.k_cache": 2}
    context = {name: types.SimpleNamespace(**{"impl": None} if name.endswith("attn") else {}) for name in layers}
    config = types.SimpleNamespace(compilation_config=types.SimpleNamespace(static_forward_context=context))
    worker.memory.layers, worker.memory.stack = layers, stacked(config, layers)
    worker.begin(Step(1, offered=True))
    for number in range(2):
        worker.layer_saved(f"model.{number}.attn")
    assert [n for _, n in node.said] == [layer_of(1, 1), layer_of(1, 2)]  # of the last one, the end of the step says so


def test_a_quiet_step_says_not_how_far_it_is(node, worker):
    look(worker, Step(3, last=1, offered=True))
    node.said.clear()
    look(worker, QUIET)
    assert node.said == []


def test_kept_blocks_make_room_for_a_request_that_waits(scheduler):
    request = types.SimpleNamespace(request_id="r", num_tokens=100)
    assert scheduler.matched(request, 0) == (0, False)
    scheduler.step(None)
    scheduler.offers.give_back.assert_called_once()
    assert scheduler.matched(request, 0) == (0, False)
    scheduler.allocated(request, None, 0)
    scheduler.step(None)
    scheduler.offers.give_back.assert_called_once()


@pytest.mark.parametrize("free, drafts, given_back", [(6, 0, True), (7, 0, False), (7, 4, True), (8, 4, False)])
def test_kept_blocks_stay_where_there_is_room(scheduler, free, drafts, given_back):
    """A request may wait for something else: for tokens of a step, an adapter, an image."""
    scheduler._room, scheduler._blocks = lambda: free, Blocks([0], [16], 1, drafts=drafts)
    scheduler._tables = lambda request: ([],)
    scheduler.matched(types.SimpleNamespace(request_id="r", num_tokens=100), 0)
    scheduler.step(None)
    assert scheduler.offers.give_back.called == given_back


@pytest.mark.parametrize("table", [[1, 2, 3, 4, 5], [0, 0, 0, 4, 5]], ids=["", "a window has left some"])
@pytest.mark.parametrize("free, given_back", [(1, True), (2, False)])
def test_so_they_do_beside_a_request_that_has_loaded_and_has_blocks(scheduler, free, given_back, table):
    request = types.SimpleNamespace(request_id="r", num_tokens=100)
    scheduler._at_once.requests = {"r": request}
    scheduler._room, scheduler._tables = lambda: free, lambda request: (table,)
    scheduler._ranks = mock.Mock(takes={})
    scheduler._ranks.hit.return_value = ()
    scheduler.ended({"r"}, (), ())
    scheduler.step(None)
    assert scheduler.offers.give_back.called == given_back
    scheduler.allocated(request, None, 0)
    scheduler.step(None)
    assert scheduler.offers.give_back.call_count == given_back, "it runs"


def test_a_hook_that_goes_on_failing_is_logged_now_and_then(monkeypatch):
    told, clock = [], iter([0.0, 0.5, 2.0])
    monkeypatch.setattr("kvpipe.vllm.guard.time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("kvpipe.vllm.guard.logger", types.SimpleNamespace(exception=lambda *words: told.append(words)))
    hook = kept_in(lambda: "nothing")(lambda: {}["key"])
    assert [hook(), hook(), hook()] == ["nothing"] * 3
    assert len(told) == 2
