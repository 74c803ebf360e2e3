"""Blocks are computed only when nothing can land in them any more, and nothing is read from them."""

import contextlib
import os
import signal
import threading

import models
import places
import pytest
from daemons import Daemon
from engine import SLOTS, Engine, wait
from text import Text

ASK = {"do_remote_decode": True, "do_remote_prefill": False}
PROMPT = list(range(2, 72))


@pytest.fixture
def daemon(folder):
    daemon = Daemon(folder / "fence", "fence", folder / "ca")
    yield daemon
    daemon.stop()


@pytest.fixture
def engines(daemon, monkeypatch):
    """The second finds the node fast, and waits as long as it takes to hear that the KV is there."""
    monkeypatch.setattr("kvpipe.vllm.atonce.ANSWER", 60_000)
    model = models.opt(places.MADE / "facebook/opt-125m")
    both = [Engine(model, daemon.socket, name, budget=256, kv_recompute_threshold=1) for name in "pd"]
    both[1].scheduler.connector._scheduler._at_once.met(daemon.node, 1e12)
    yield both
    for engine in both:
        engine.close()


def until(engine, request):
    while request not in engine.ends:
        if not engine.step():
            wait(engine.filenos())


def prefilled(p):
    p.add("r", PROMPT, 1, dict(ASK))
    until(p, "r")
    return p.params["r"]


def outlasts(daemon, how, work, why):
    """What work() returns, which begins while the daemon stands still, and must not be over before it goes on or is killed."""
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)  # all of its threads: on a busy machine that takes a while
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), why
    if how == "is killed":
        daemon.kill()
    else:
        daemon.process.send_signal(signal.SIGCONT)
    thread.join(60)
    return results[0]


@pytest.mark.parametrize("how", ["goes on", "is killed"])
def test_a_step_lasts_until_the_daemon_lets_go(daemon, engines, how):
    p, d = engines
    d.add("r", PROMPT, 3, prefilled(p))
    output = d.scheduler.schedule()
    assert [load.at_once for load in output.kv_connector_metadata.loads] == [True]
    result = outlasts(daemon, how, lambda: d._execute(output), "the daemon may still move bytes: it has them mapped")
    assert result.kv_connector_output.invalid_block_ids == set(output.kv_connector_metadata.loads[0].blocks[0])
    d._update(output, result)
    until(d, "r")
    assert d.answers["r"] == Text(PROMPT).answer(3) and "r" not in d.awaited
    if how == "is killed":
        daemon.start()


@contextlib.contextmanager
def layered(daemon):
    """An engine that has offered the first blocks of a request which it still computes, and does so no more in the end."""
    with contextlib.closing(Engine(models.opt(places.MADE / "facebook/opt-125m"), daemon.socket, "l", budget=32, layerwise=True)) as p:
        ours = {"v": 1, "node": daemon.node, "token": "A" * 22}
        p.add("r", PROMPT, 1, {**ASK, "transfer_id": "t", "kvpipe": ours})
        p.step()
        running = p.scheduler.connector._scheduler._operations.running
        (tag, offer), = running.items()
        assert offer.operation.tokens == 32
        yield p
        assert tag not in running


@pytest.mark.parametrize("how", ["goes on", "is killed"])
def test_blocks_of_a_preempted_request_wait_for_the_daemon_too(daemon, how):
    with layered(daemon) as p:
        p.preempt()
        output = outlasts(daemon, how, p.scheduler.schedule, "the daemon may still read them")
        p._update(output, p._execute(output))
        until(p, "r")
        assert p.answers["r"] == Text(PROMPT).answer(1)
    if how == "is killed":
        daemon.start()


def test_so_they_do_where_it_is_aborted_before_the_next_step(daemon):
    """vLLM has freed them, and that step computes another request in them."""
    with layered(daemon) as p:
        p.preempt()

        def aborted():
            p.abort("r")
            p.add("next", PROMPT[::-1], 1)
            return p.scheduler.schedule()

        output = outlasts(daemon, "goes on", aborted, "the daemon may still read them")
        assert "next" in output.num_scheduled_tokens
        p._update(output, p._execute(output))
        while p.busy:
            p.step()
        assert p.answers["next"] == Text(PROMPT[::-1]).answer(1)
        p.settle()
        p.assert_empty()


def test_what_was_not_loaded_is_not_found_by_the_next_request(daemon, engines):
    """vLLM has blocks found from the moment in which they are allocated for a load that a step waits for."""
    p, d = engines
    loads, begun = d.worker._worker._loads, []
    loads.begin = lambda named: begun.extend(named) or [loads._spoil(load) for load in named] and []
    d.add("r", PROMPT, 3, prefilled(p))
    d.step()
    assert begun
    d.abort("r")  # before its blocks are computed
    d.add("same", PROMPT, 3, None)
    until(d, "same")
    assert d.answers["same"] == Text(PROMPT).answer(3)


def test_what_layers_did_not_bring_is_not_found_by_a_request_of_the_same_step(daemon):
    """Who found it would trust that the one that was to load it computes it, and that may have gone."""
    model = models.opt(places.MADE / "facebook/opt-125m")
    pair = {"transfer_id": "t", "kvpipe": {"v": 1, "node": daemon.node, "token": "A" * 22}}
    with contextlib.ExitStack() as stack:
        p, d = (Engine(model, daemon.socket, name, budget=256, kv_recompute_threshold=1, layerwise=True) for name in "pd")
        stack.callback(p.close)
        stack.callback(d.close)
        p.add("r", PROMPT, 1, {**ASK, **pair})
        until(p, "r")
        loads = d.worker._worker._loads
        loads.begin = lambda named: [loads._spoil(load) for load in named] and []
        d.add("r", PROMPT, 3, {"do_remote_prefill": True, **pair})
        assert d.scheduler.connector._scheduler._waiting.answered("r", 60_000)
        d.add("same", PROMPT, 3, None)
        output = d.scheduler.schedule()
        assert [load.layered for load in output.kv_connector_metadata.loads] == [True]
        d._update(output, d._execute(output))
        d.abort("r")
        until(d, "same")
        assert d.answers["same"] == Text(PROMPT).answer(3)


def loads_nothing(engine, name, tokens):
    """As in MultiConnector: another connector tells that it loads so many tokens of a request, in its first step, and then that it has not."""
    ours, worker = engine.scheduler.connector, engine.worker
    matched, allocated, failed = ours.get_num_new_matched_tokens, ours.update_state_after_alloc, worker.get_block_ids_with_load_errors
    bad = []

    def loaded(request, blocks, count):
        if request.request_id == name and count:
            bad.extend(blocks.get_block_ids()[0][:tokens // SLOTS])
        allocated(request, blocks, 0 if request.request_id == name else count)

    def told():
        gone, bad[:] = set(bad), []
        return failed() | gone

    ours.get_num_new_matched_tokens = lambda request, computed: (
        (tokens - computed, False) if request.request_id == name else matched(request, computed))
    ours.update_state_after_alloc, worker.get_block_ids_with_load_errors = loaded, told


def test_nor_is_what_another_connector_did_not_load_found(daemon):
    """vLLM goes on to have it found, though nobody may compute it any more."""
    with contextlib.closing(Engine(models.opt(places.MADE / "facebook/opt-125m"), daemon.socket, "p", budget=256)) as p:
        loads_nothing(p, "r", 64)
        p.add("r", PROMPT, 3)
        p.step()
        p.abort("r")
        p.add("same", PROMPT, 1, dict(ASK))
        until(p, "same")
        assert p.answers["same"] == Text(PROMPT).answer(1) and p.params["same"]
