"""Processes that are killed or stopped in the middle of a hand-over cost only themselves, and nobody waits for ever."""

import signal
import time

import kvpipe
import pytest
from daemons import Daemon, mortal
from engines import LATE, Engine, idle, until, usage

LAYERS, BLOCKS = 4, 64
TIMEOUT = 4.0  # of takes that are to end by it
LONG = 60.0  # of those that are to succeed
TOKEN = b"0123456789abcdef"
LOST = (kvpipe.PeerGone, kvpipe.Timeout, kvpipe.Unavailable, kvpipe.Restarted, kvpipe.NotFound, kvpipe.Expired)


@pytest.fixture(params=["local", "tcp"])
def nodes(request, folder):
    """(producer's daemon, consumer's daemon, the producer's name for the consumer), to be killed at will."""
    with mortal(folder, "p", "c", request.param == "tcp") as nodes:
        yield nodes


def prefill(node, name):
    """Offers all blocks, of which one layer is written."""
    engine = Engine(node.socket, name, layers=LAYERS, blocks=BLOCKS)
    engine.ask(f"""
        ids = list(range({BLOCKS}))
        [cache.fill(i, i) for i in ids]
        offer = cache.node.offer("k", [], tokens=0, sealed=False, token={TOKEN!r}, consumers=2)
        offer.extend(ids, tokens=16 * {BLOCKS}, after=1 << 16, layered=True, sealed=True)
        cache.node.progress(1 << 16 | 1)
        """)
    return engine


def decode(node, name, peer, layer=0, timeout=TIMEOUT):
    """Takes all blocks, and returns when that layer is there."""
    engine = Engine(node.socket, name, layers=LAYERS, blocks=BLOCKS)
    engine.ask(f"""
        ids = list(range({BLOCKS}))[::-1]
        take = cache.node.take("k", ids, peer={peer!r}, token={TOKEN!r}, tokens=16 * {BLOCKS}, timeout={timeout}, layered=True)
        """)
    if layer is not None:
        engine.ask(f"take.wait_layer({layer}, {timeout})")
    return engine


def fails(engine, began):
    """The take ends, of itself or at its deadline; how."""
    with pytest.raises(LOST) as error:
        engine.ask("take.wait()")
    assert time.monotonic() - began < TIMEOUT + LATE, error.value
    return error.value


def works(near, far, peer, producer, consumer):
    """A whole hand-over between engines of these names."""
    with prefill(near, producer) as p, decode(far, consumer, peer, timeout=LONG) as c:
        p.ask(f"cache.node.progress(1 << 16 | {LAYERS})")
        c.ask("take.wait()")
        assert c.ask("all(cache.holds(b, a) for a, b in enumerate(ids))")
        c.ask("cache.close()")
        p.ask("cache.close()")


@pytest.mark.parametrize("victim", ["producer", "consumer"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_an_engine_in_mid_transfer(nodes, victim, how):
    near, far, peer = nodes
    works(near, far, peer, "p", "c")
    idle(near), idle(far)
    before = usage(near), usage(far)
    with prefill(near, "p") as p, decode(far, "c", peer, timeout=LONG if how == "kill" else TIMEOUT) as c:
        began = time.monotonic()
        dead, other = (p, c) if victim == "producer" else (c, p)
        dead.signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        if victim == "producer":
            error = fails(c, began)
            c.ask("take.wait_released(60)")
            assert isinstance(error, kvpipe.Timeout if how == "stop" else kvpipe.PeerGone), error
            assert c.ask("take.failed_blocks == ids")
        elif how == "kill":
            with decode(far, "c2", peer, timeout=LONG) as second:  # the offer stands
                p.ask(f"cache.node.progress(1 << 16 | {LAYERS})")
                second.ask("take.wait()")
        if how == "stop":
            if victim == "consumer":  # its take ends without it
                until(lambda: not far.ask("status")["counts"]["transfers"], "the take has ended", TIMEOUT + LATE)
            dead.signal(signal.SIGCONT)
            if victim == "consumer":
                with pytest.raises(kvpipe.Timeout):
                    c.ask("take.wait()")
                c.ask("take.wait_released(60)")
            p.ask("offer.withdraw()")
        other.ask("cache.close()")
    idle(near, before[0]), idle(far, before[1])
    works(near, far, peer, "p", "c")


@pytest.mark.parametrize("when", ["before the grant", "after the end"])
def test_a_producer_killed(nodes, when):
    near, far, peer = nodes
    with prefill(near, "p") as p:
        if when == "after the end":
            with decode(far, "c", peer, timeout=LONG) as c:
                p.ask(f"cache.node.progress(1 << 16 | {LAYERS})")
                c.ask("take.wait()")
                p.signal(signal.SIGKILL)
                p.process.wait()
                assert c.ask("take.released and all(cache.holds(b, a) for a, b in enumerate(ids))")
                with decode(far, "c2", peer, timeout=LONG) as late:  # what was finished can still be taken
                    late.ask("take.wait()")
                    assert late.ask("all(cache.holds(b, a) for a, b in enumerate(ids))")
        else:
            p.signal(signal.SIGKILL)
            p.process.wait()
            began = time.monotonic()
            with decode(far, "c", peer, layer=None) as c:
                fails(c, began)
                c.ask("take.wait_released(60)")
    idle(near), idle(far)
    works(near, far, peer, "p", "c")


@pytest.mark.parametrize("nodes, victim", [("local", "near"), ("tcp", "near"), ("tcp", "far")], indirect=["nodes"])
def test_a_daemon_killed_in_mid_transfer(nodes, folder, victim):
    near, far, peer = nodes
    with prefill(near, "p") as p, decode(far, "c", peer, timeout=LONG) as c:
        began = time.monotonic()
        (near if victim == "near" else far).kill()
        assert not isinstance(fails(c, began), kvpipe.Timeout)
        c.ask("take.wait_released(60)")
        assert c.ask("take.failed_blocks == ids")
        if peer is None or victim == "near":
            with pytest.raises(LOST):
                p.ask("offer.wait(1)")  # it waits for another daemon
            c.ask("cache.close()")
            if peer:
                idle(far)
            return
        home = folder / f"again{len(list(folder.iterdir()))}"  # the node comes back, and the offer stands
        again = Daemon(home, far.node, folder / "ca", [f"{peer}={near.ask('status')['advertise']}"])
        try:
            with decode(again, "c", peer, timeout=LONG) as second:
                p.ask(f"cache.node.progress(1 << 16 | {LAYERS})")
                second.ask("take.wait()")
                assert second.ask("all(cache.holds(b, a) for a, b in enumerate(ids))")
                second.ask("cache.close()")
        finally:
            again.stop()
        p.ask("cache.close()")
    idle(near)


@pytest.mark.parametrize("nodes, victim", [("local", "near"), ("tcp", "near"), ("tcp", "far")], indirect=["nodes"])
def test_a_daemon_stopped_in_mid_transfer(nodes, victim):
    near, far, peer = nodes
    works(near, far, peer, "p", "c")
    idle(near), idle(far)
    before = usage(near), usage(far)
    with prefill(near, "p") as p, decode(far, "c", peer) as c:
        began = time.monotonic()
        dead = near if victim == "near" else far
        dead.freeze()
        try:
            fails(c, began)
            if dead is far:
                assert not c.ask("take.released")  # only the daemon can say
        finally:
            dead.process.send_signal(signal.SIGCONT)
        c.ask("take.wait_released(60)")
        p.ask("offer.withdraw()")
        works(near, far, peer, "p3", "c3")
        p.ask("cache.close()")
        c.ask("cache.close()")
    idle(near, before[0]), idle(far, before[1])
