"""How a load is counted whose parts are taken in several places: once, with the bytes of all, and as failed if any part is."""

import functools
import pickle
import types

import pytest
from fakes import ends
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sides import TOKEN, begun, placed, request, scheduler, step

from kvpipe import Reason, Status, Unavailable
from kvpipe.vllm.connector import KVPipeConnector
from kvpipe.vllm.loads import Loads
from kvpipe.vllm.meta import Load
from kvpipe.vllm.stats import Counts
from kvpipe.vllm.whole import Whole


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


def test_one_that_failed_before_its_memory_is_free_counts_and_is_given_back_once(node):
    side = scheduler(node)
    begun(side, request(100))
    [tag] = side._operations.running
    node.coming = [ends(tag, Status.FAILED, Reason.PEER_GONE, released=False)]
    step(side)
    assert side._operations.running, "bytes may still come"
    node.coming = [ends(tag, Status.RELEASED)]
    step(side)
    assert not side._operations.running
    assert side.counts().data["failed"] == {"peer_gone": 1} and node.told.count(("drop", "k")) == 1


@pytest.fixture
def whole():
    """(loads with parts elsewhere, what they count, the peers that were met and at which rate)"""
    counts, met = Counts(), []
    whole = Whole(counts, lambda peer, rate: met.append((peer, rate)))
    whole.begun("r", "other", 0.25)
    return whole, counts.data, met


def test_its_producer_is_met_with_the_rate_of_all_parts(whole):
    loads, counted, met = whole
    loads.ended_elsewhere("r")
    loads.ended_here("r", ends(2)._replace(bytes=50), 2.0)
    assert counted["load_bytes"] == [200] and met == [("other", 100)]


def test_nor_is_one_met_that_gave_nothing(whole):
    loads, counted, met = whole
    loads.ended_here("r", ends(2, Status.FAILED, Reason.PEER_GONE), 2.0)
    loads.ended_elsewhere("r")
    assert counted["failed"] == {"peer_gone": 1} and not met


def test_the_first_reason_is_why_parts_elsewhere_were_for_nothing(whole):
    """A request of which a part failed is cancelled everywhere after that."""
    loads, counted, met = whole
    loads.failed_elsewhere("r", "elsewhere")
    loads.failed_elsewhere("r", "cancelled")
    loads.ended_elsewhere("r")
    loads.ended_here("r", ends(2), 2.0)
    assert counted["failed"] == {"elsewhere": 1} and not met


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


@pytest.mark.parametrize("awaited", [True, False], ids=["that a step waits for", "that is heard of later"])
def test_a_load_that_a_rank_cannot_ask_for_counts_once(node, awaited):
    node.refuses = Unavailable("no")
    loads = Loads(node, 0, lambda peer, rate: None)
    load = Load(7, "r", "k", "other", TOKEN, None, b"", [[1, 2]], 0, 32, 0, {0: 0, 1: 1}, 2, 30.0, awaited)
    assert (loads.begin([load]), loads.bad) == (([], {1, 2}) if awaited else ([7], set()))
    assert loads.counts.take().to_dict()["failed"] == {"refused": 1}


@pytest.mark.parametrize("rank, end, counted, peers", [
    (0, ends(7)._replace(bytes=50), [100], [("other", 25)]),
    (1, ends(7)._replace(bytes=50), None, []),
    (0, ends(7, Status.FAILED, Reason.PEER_GONE), [], []),
], ids=["the first", "another", "it failed"])
def test_the_first_rank_counts_for_all_where_the_scheduler_takes_no_part(node, monkeypatch, rank, end, counted, peers):
    met, load = [], Load(7, "r", "k", "other", TOKEN, None, b"", [[1, 2]], 0, 32, 0, {0: 0, 1: 1}, 2, 30.0, False)
    now = [100.0]
    monkeypatch.setattr("kvpipe.vllm.loads.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    loads = Loads(node, rank, lambda peer, rate: met.append((peer, rate)))
    loads.begin([load])
    now[0] += 4
    node.coming = [end]
    node.poll()
    loads.over(7)
    assert 7 not in loads
    told = loads.counts.take()
    assert (told and told.data["load_bytes"], told and told.data["load_seconds"], met) == (counted, counted and [4.0], peers)


def test_a_rank_without_a_part_of_a_load_takes_nothing(node):
    loads = Loads(node, 2, lambda peer, rate: None)
    assert not loads.begin([Load(7, "r", "k", "other", TOKEN, None, b"", [[1, 2]], 0, 32, 0, {0: 0, 1: 1}, 2, 30.0, False)])
    assert not node.taken and 7 not in loads


def test_what_only_parts_say_is_something():
    counts = Counts()
    assert counts.is_empty() and counts.take() is None
    counts.part(7, 0.1, 50)
    assert not counts.is_empty() and not counts.take().is_empty()


def test_each_offer_counts_once_by_how_it_ended():
    counts = Counts()
    for end in (ends(1), ends(2), ends(3, Status.FAILED, Reason.TIMEOUT)):
        counts.ended(False, end, 0.1)
    assert counts.data["offers"] == {"consumed": 2, "timeout": 1}
    told = Counts(counts.data).reduce()
    assert (told["offers consumed"], told["offers not consumed"], told["loads"], told["failed loads"]) == (2, 1, 0, 0)


def test_the_log_line_has_the_median_and_the_slowest():
    """In milliseconds, of a hundred loads all but the slowest one."""
    counts = Counts()
    for i in reversed(range(200)):
        counts.ended(True, ends(i)._replace(bytes=10_000), i / 1e3)
    told = counts.reduce()
    assert (told["load p50 (ms)"], told["load p99 (ms)"], told["MB loaded"], told["loads"]) == (100, 198, 2, 200)


def test_prometheus_hears_of_each_engine_what_it_has_counted():
    registry = CollectorRegistry()
    types_of = {kind: functools.partial(kind, registry=registry) for kind in (Counter, Gauge, Histogram)}
    config = types.SimpleNamespace(kv_transfer_config=None)
    metrics = KVPipeConnector.build_prom_metrics(config, types_of, ["engine"], {0: ["zero"], 1: ["one"]})
    counts = KVPipeConnector.build_kv_connector_stats()
    counts.ended(True, ends(1)._replace(bytes=1 << 20), 0.2)
    for end in (ends(2), ends(3)):
        counts.ended(False, end, 0.1)
    counts.failed("timeout")
    metrics.observe(counts.to_dict(), 1)
    said = {(sample.name, *sample.labels.values()): sample.value for metric in registry.collect() for sample in metric.samples}
    assert {name: value for name, value in said.items() if name[0].endswith(("_sum", "_count", "_total"))} == {
        ("vllm:kvpipe_load_seconds_sum", "one"): 0.2, ("vllm:kvpipe_load_seconds_count", "one"): 1,
        ("vllm:kvpipe_load_bytes_sum", "one"): 1 << 20, ("vllm:kvpipe_load_bytes_count", "one"): 1,
        ("vllm:kvpipe_failed_loads_total", "one", "timeout"): 1, ("vllm:kvpipe_offers_total", "one", "consumed"): 2}
