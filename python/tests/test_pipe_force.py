"""Pipes and lookup buffers whose processes are killed, whose daemons go, whose ends close at the wrong moment."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import sys
import time

import kvpipe
import numpy
import pytest
from daemons import mortal
from engines import LATE, PATIENCE, Engine, gone, idle, mapped, until, why_late

from kvpipe.pipe import given_up


@pytest.fixture(params=["one node", "two nodes"])
def nodes(request, folder):
    """(sender's daemon, receiver's daemon, the sender's name for the receiver), to be killed at will."""
    with mortal(folder, "s", "r", request.param == "two nodes") as nodes:
        yield nodes


def sender(daemon, count, linger=10):
    """A process that has sent `count` arrays: n times n."""
    engine = Engine(daemon.socket, "tx", blocks=1)
    engine.ask(f"""
        import numpy
        tx = cache.node.pipe("p", "send", capacity=1 << 20, linger={linger})
        [tx.send_tensor(numpy.full(n, n)) for n in range({count})]
        """)
    return engine


def receive(rx, numbers):
    for n in numbers:
        assert rx.recv_tensor(framework="numpy").tolist() == [n] * n


@pytest.mark.parametrize("how", ["killed", "closed", "session closed"])
def test_what_was_sent_is_received(nodes, how):
    """Also when the receiver comes only then; and then it hears why nothing more comes."""
    there, here, peer = nodes
    for first in (0, 20):
        with sender(there, 50) as engine, kvpipe.connect(here.socket, engine_id="rx") as node, \
                node.pipe("p", "recv", peer=peer, window=4) as rx:
            receive(rx, range(first))
            if how == "killed":
                engine.signal(signal.SIGKILL)
                engine.process.wait()
                gone(there, "tx")
            else:
                engine.ask("tx.close()" if how == "closed" else "cache.node.close()")
            receive(rx, range(first, 50))
            for _ in range(2):
                with pytest.raises(kvpipe.PeerGone if how == "killed" else kvpipe.Closed):
                    rx.recv_tensor(timeout=60)
        idle(there), idle(here)


def test_linger_is_over(nodes):
    there, here, peer = nodes
    with sender(there, 50, linger=0.2) as engine:
        engine.ask("tx.close()")
    idle(there)  # without anybody who looks
    with kvpipe.connect(here.socket, engine_id="rx") as node, node.pipe("p", "recv", peer=peer) as rx:
        assert "no sender opened it" in why_late(lambda: rx.recv_tensor(timeout=3), 3)


def test_a_receiver_hears_that_the_rest_was_given_up(nodes):
    there, here, peer = nodes
    with kvpipe.connect(there.socket, engine_id="tx") as node, kvpipe.connect(here.socket, engine_id="rx") as other:
        with other.pipe("p", "recv", peer=peer, window=1) as rx:
            with node.pipe("p", "send", linger=0.2) as tx:
                for n in range(50):
                    tx.send_tensor(numpy.full(1000, n))
                assert rx.recv_tensor()[0] == 0

            def over():
                with contextlib.suppress(kvpipe.Busy):
                    return node.pipe("p", "send", linger=0.01).close() is None

            until(over, "its name is free again")
            with pytest.raises(kvpipe.PeerGone) as told:
                for _ in range(50):
                    rx.recv_tensor(timeout=60)
            assert given_up(told.value), told.value
            assert not given_up(kvpipe.PeerGone(f"{told.value}, or not"))


def test_a_receiver_is_killed(nodes):
    """The next one goes on; the sender notices nothing but a pause."""
    there, here, peer = nodes
    before = mapped(there), mapped(here)
    with kvpipe.connect(there.socket, engine_id="tx") as node, node.pipe("p", "send", capacity=4000) as tx:
        with Engine(here.socket, "rx", blocks=1) as engine:
            engine.ask(f'rx = cache.node.pipe("p", "recv", peer={peer!r}, window=1)')
            for n in range(5):
                tx.send_tensor(numpy.array([n]))
            assert engine.ask("[int(rx.recv_tensor()[0]) for _ in range(2)]") == [0, 1]
            engine.begin("rx.recv_tensor(), rx.recv_tensor(), rx.recv_tensor(), rx.recv_tensor(timeout=60)")
            tx.flush()
            engine.signal(signal.SIGKILL)
            engine.process.wait()
        gone(here, "rx")
        tx.send_tensor(numpy.array([5]))
        with kvpipe.connect(here.socket, engine_id="rx") as other, other.pipe("p", "recv", peer=peer) as rx:
            assert int(rx.recv_tensor(timeout=60)[0]) == 5
            tx.flush()
    idle(there, before[0]), idle(here, before[1])


def test_the_senders_daemon_is_killed(nodes):
    there, here, peer = nodes
    with kvpipe.connect(there.socket, engine_id="tx") as a, kvpipe.connect(here.socket, engine_id="rx") as b, \
            a.pipe("p", "send", capacity=10_000) as tx, b.pipe("p", "recv", peer=peer, window=1) as rx, \
            a.lookup_buffer("l", capacity=10_000) as own, b.lookup_buffer("l", peer=peer) as sel:
        for n in range(10):
            tx.send_tensor(numpy.array([n]))
        own.insert(numpy.array([1]), None, None, None, None)
        assert int(rx.recv_tensor()[0]) == 0
        there.kill()
        # Each end hears of it for itself; what was published before it did is lost, and the error of a later call.
        with pytest.raises(kvpipe.Restarted, match="open it again"):
            while True:
                tx.send_tensor(None)
        with pytest.raises(kvpipe.Restarted, match="open it again"):
            while True:
                own.insert(None, None, None, None, None)
        # From another node, nothing comes any more; another sender's daemon may be there at any time.
        lost = kvpipe.Restarted if peer is None else (kvpipe.PeerGone, kvpipe.Timeout)
        with pytest.raises(lost):
            while True:
                rx.recv_tensor(timeout=3 if peer else 60)
        with pytest.raises(lost):
            while True:
                sel.drop_select(timeout=3 if peer else 60)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_tasks_hear_that_the_daemon_is_gone(folder, how):
    with mortal(folder, "s", "r", False) as (daemon, _, _), kvpipe.connect(daemon.socket, engine_id="e") as node, \
            node.pipe("p", "send", capacity=1000) as tx, node.pipe("p/2", "recv") as rx, node.lookup_buffer("l") as sel:
        tx.send_tensor(bytes(1000))

        async def main():
            tasks = [asyncio.ensure_future(call) for call in (
                tx.send_tensor_async(bytes(1000), 10 * PATIENCE), tx.flush_async(10 * PATIENCE),
                rx.recv_tensor_async(10 * PATIENCE), sel.get_async("k", 10 * PATIENCE))]
            await asyncio.sleep(0)  # now each of them waits
            await asyncio.get_running_loop().run_in_executor(None, daemon.kill if how == "killed" else daemon.stop)
            _, late = await asyncio.wait(tasks, timeout=PATIENCE)
            assert not late, f"{len(late)} of {len(tasks)} tasks wait still"
            assert {type(task.exception()) for task in tasks} == {kvpipe.Restarted}

        asyncio.run(main())


def test_an_end_opened_while_the_daemon_is_away(nodes):
    """It waits for the next daemon, as every call does."""
    there, _, _ = nodes
    with kvpipe.connect(there.socket, engine_id="tx") as node, concurrent.futures.ThreadPoolExecutor(1) as pool:
        there.kill()
        opened = pool.submit(node.pipe, "p", "send", capacity=1000)
        with pytest.raises(concurrent.futures.TimeoutError):
            opened.result(0.2)
        there.start()
        with opened.result(60) as tx, node.pipe("p", "recv") as rx:
            tx.send_tensor(b"back")
            assert bytes(rx.recv_tensor(framework="raw").data) == b"back"


def test_a_daemon_that_hangs(nodes):
    """Calls end at their deadlines, and go on when it goes on."""
    there, here, peer = nodes
    with kvpipe.connect(there.socket, engine_id="tx") as a, kvpipe.connect(here.socket, engine_id="rx") as b, \
            a.pipe("p", "send", capacity=2000) as tx, b.pipe("p", "recv", peer=peer, window=1) as rx, \
            a.lookup_buffer("l", capacity=2000) as own, b.lookup_buffer("l", peer=peer) as sel:
        tx.send_tensor(bytes(1500))
        assert rx.recv_tensor(framework="raw").shape == (1500,)
        tx.flush()
        own.put("k", bytes(100))
        assert sel.get("k", framework="raw").shape == (100,)
        there.freeze()
        try:
            tx.send_tensor(bytes(1500))
            for call in (
                lambda: tx.send_tensor(bytes(1500), timeout=0.3), lambda: tx.flush(0.3), lambda: rx.recv_tensor(0.3),
                lambda: sel.drop_select(timeout=0.3), lambda: sel.get("k", timeout=0.3), lambda: own.put("k", None, 0.3),
            ):
                took = []
                for _ in range(5):  # of a busy machine the best says what the call itself takes
                    began = time.monotonic()
                    with pytest.raises((kvpipe.Timeout, kvpipe.PeerGone, kvpipe.Unavailable)):
                        call()
                    took.append(time.monotonic() - began)
                    assert took[-1] < 0.3 + LATE
                    if took[-1] < 1.3:
                        break
                assert min(took) < 1.3, took
        finally:
            os.kill(there.process.pid, signal.SIGCONT)
        if peer is None:
            assert rx.recv_tensor(timeout=60, framework="raw").shape == (1500,)
            own.put("k", bytes(200), timeout=60)
            assert sel.get("k", timeout=60, framework="raw").shape == (200,)  # and what was given up before is cancelled
            own.insert(None, None, None, bytes(10), None)
            assert sel.drop_select(timeout=60, framework="raw")[3].shape == (10,)


def test_what_was_sent_to_a_daemon_that_hung(folder):
    """It is received, and told to be all, though its sender closed the pipe, and gave up waiting for that, before the daemon had seen any of it."""
    with mortal(folder, "s", "r", False) as (daemon, _, _), kvpipe.connect(daemon.socket, engine_id="e") as node, \
            node.pipe("p", "recv") as rx:
        tx = node.pipe("p", "send", capacity=1 << 20)
        daemon.freeze()
        try:
            for n in range(500):
                tx.send_tensor(numpy.full(n % 10, n))
            tx.close()
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        for n in range(500):
            assert rx.recv_tensor(timeout=60, framework="numpy").tolist() == [n] * (n % 10)
        with pytest.raises(kvpipe.Closed, match="was closed by its sender"):
            rx.recv_tensor(timeout=60)


def test_tasks_send_when_a_daemon_that_hung_goes_on(folder):
    """What found the submission queue full looks again: no descriptor tells of room there."""
    with mortal(folder, "s", "r", False) as (daemon, _, _), kvpipe.connect(daemon.socket, engine_id="e") as node, \
            node.pipe("p", "send", capacity=1 << 20) as tx, node.lookup_buffer("l", capacity=1 << 20) as own:
        daemon.freeze()
        try:
            for fill in (lambda: tx.send_tensor(None, 0)), (lambda: own.insert(None, None, None, None, None, 0)):
                with pytest.raises(kvpipe.Timeout, match="does not take submissions"):
                    while True:
                        fill()

            async def main():
                tasks = [asyncio.ensure_future(call) for call in (
                    tx.send_tensor_async(b"late", 10 * PATIENCE), own.put_async("k", b"late", 10 * PATIENCE),
                    own.insert_async(None, None, None, None, None, 10 * PATIENCE))]
                for _ in range(10):  # now each of them waits, and has heard what there was to hear
                    await asyncio.sleep(0)
                os.kill(daemon.process.pid, signal.SIGCONT)
                _, late = await asyncio.wait(tasks, timeout=PATIENCE)
                assert not late, f"{len(late)} of {len(tasks)} tasks wait still"
                await asyncio.gather(*tasks)

            asyncio.run(main())
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)


def test_tasks_try_ever_more_seldom_while_a_daemon_hangs(folder, monkeypatch):
    """Each try has the event loop wait for room for a tenth of a second, and makes an edge of its own."""
    with mortal(folder, "s", "r", False) as (daemon, _, _), kvpipe.connect(daemon.socket, engine_id="e") as node, \
            node.pipe("p", "send", capacity=1 << 20) as tx:
        daemon.freeze()
        try:
            with pytest.raises(kvpipe.Timeout, match="does not take submissions"):
                while True:
                    tx.send_tensor(None, 0)

            async def main():
                tries, enough, one = [], asyncio.Event(), tx._try

                def counted(call, ns):
                    tries.append(time.monotonic())
                    if len(tries) == 3:
                        enough.set()
                    return one(call, ns)

                monkeypatch.setattr(tx, "_try", counted)
                task = asyncio.ensure_future(tx.send_tensor_async(b"late", 10 * PATIENCE))
                await asyncio.wait_for(enough.wait(), PATIENCE)
                assert tries[2] - tries[0] >= 0.6, "pauses of 0.2 and 0.4 s"
                task.cancel()

            asyncio.run(main())
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)


def test_senders_are_killed_while_they_send(nodes):
    """Whatever came is whole and in order, and nothing is left."""
    there, here, peer = nodes
    before = mapped(there), mapped(here)
    with kvpipe.connect(here.socket, engine_id="rx") as node:
        for i in range(10):
            with Engine(there.socket, "tx", blocks=1) as engine:
                engine.ask("import numpy; tx = cache.node.pipe('p', 'send', capacity=1 << 20, linger=0.1)")
                engine.begin("[tx.send_tensor(numpy.full(n % 3000, n)) for n in range(10 ** 9)]")
                with node.pipe("p", "recv", peer=peer) as rx:
                    n = 0
                    for n in range(20 * i):
                        assert rx.recv_tensor(framework="numpy").tolist() == [n] * (n % 3000)
                    engine.signal(signal.SIGKILL)
                    n = 20 * i
                    with pytest.raises((kvpipe.PeerGone, kvpipe.Timeout)):
                        while True:
                            assert rx.recv_tensor(timeout=3, framework="numpy").tolist() == [n] * (n % 3000)
                            n += 1
            gone(there, "tx")
    idle(there, before[0]), idle(here, before[1])


def test_fork(near):
    with kvpipe.connect(near.socket, engine_id="a") as node, node.pipe("p", "send", capacity=4096) as tx, \
            node.pipe("p", "recv") as rx:
        tx.send_tensor(b"before")
        kept = rx.recv_tensor(framework="raw")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for call in (lambda: tx.send_tensor(None), rx.recv_tensor, node.poll):
                    with pytest.raises(kvpipe.Closed, match="after fork"):
                        call()
                del kept
                tx.close(), rx.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        tx.send_tensor(b"after")
        assert bytes(rx.recv_tensor(framework="raw").data) == b"after" and bytes(kept.data) == b"before"


def test_a_child_does_not_receive_what_could_not_be_returned(near, name, monkeypatch):
    """Its memory is not there."""
    with kvpipe.connect(near.socket, engine_id="a") as node, node.pipe(name, "send", capacity=1 << 20) as tx, \
            node.pipe(name, "recv") as rx:
        tx.send_tensor(kvpipe.RawTensor("bfloat16", (50_000,), b"ab" * 50_000))
        with monkeypatch.context() as without, pytest.raises(kvpipe.Unavailable, match="ml_dtypes"):
            without.setitem(sys.modules, "ml_dtypes", None)
            rx.recv_tensor(framework="numpy")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(kvpipe.Closed, match="after fork"):
                    bytes(rx.recv_tensor(framework="raw").data)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert bytes(rx.recv_tensor(framework="raw").data) == b"ab" * 50_000


@pytest.mark.parametrize("size, capacity", [(100, 1 << 16), (100_000, 1 << 20)])
def test_a_child_finds_zeros_where_received_tensors_lie(near, size, capacity):
    """It has those that the library had to copy out of its arena, which is a quarter larger than the capacity."""
    with kvpipe.connect(near.socket, engine_id="a") as node, node.pipe("zeros", "send", capacity=capacity) as tx, \
            node.pipe("zeros", "recv") as rx:
        kept = []
        for n in range(2 * (capacity // size)):
            tx.send_tensor(bytes([1 + n % 255]) * size)
            kept.append(rx.recv_tensor(framework="raw").data)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                there = [bytes(data).strip(b"\0") for data in kept]
                zeros = [not data for data in there]
                assert zeros[0] and not zeros[-1] and len(set(zeros)) == 2
                assert all(data == bytes([1 + n % 255]) * size for n, data in enumerate(there) if data)
                kept[0][:] = b"w" * size
                grandchild = os.fork()  # it has a copy
                if grandchild == 0:
                    os._exit(bytes(kept[0]) != b"w" * size)
                assert os.waitpid(grandchild, 0)[1] == 0
                kept.clear()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert all(bytes(data) == bytes([1 + n % 255]) * size for n, data in enumerate(kept))
