"""Pipes: order, None, room, deadlines, ends; within a node and between two."""

import re
import asyncio
import concurrent.futures
import functools
import gc
import random
import select
import threading

import kvpipe
import numpy
import pytest
from engines import PATIENCE, why_late
from kvpipe import RawTensor, _end


@pytest.fixture
def pipe(two, name):
    a, b, peer = two
    with a.pipe(name, "send", capacity=1 << 20) as tx, b.pipe(name, "recv", peer=peer) as rx:
        yield tx, rx


@pytest.fixture
def local(near):
    with kvpipe.connect(near.socket, engine_id="a") as node:
        yield node


def test_iteration_outlasts_silence(pipe, monkeypatch):
    """Until the sender has closed the pipe, however often nothing comes in the time that a call has."""
    tx, rx = pipe
    monkeypatch.setattr(kvpipe._end, "TIMEOUT", 0.02)
    calls = []

    def call(result):
        calls.append(result)
        if len(calls) == 3:
            tx.send_tensor(b"late")
        if len(calls) == 6:
            tx.close()
        return result

    receive, receive_async = rx.recv_tensor, rx.recv_tensor_async
    monkeypatch.setattr(rx, "recv_tensor", lambda: call(receive)(timeout=10 if len(calls) == 3 else None, framework="raw"))
    monkeypatch.setattr(rx, "recv_tensor_async", lambda: call(receive_async)(framework="raw"))
    assert bytes(next(rx).data) == b"late" and len(calls) == 3

    async def main():
        return [t async for t in rx]

    assert asyncio.run(main()) == [] and len(calls) >= 6


def test_iteration_of_what_was_empty(two, name):
    """Also if the sender was gone before its receiver asked for anything; the name is free for the next sender at once."""
    a, b, peer = two
    with b.pipe(name, "recv", peer=peer) as rx:
        a.pipe(name, "send").close()
        assert list(rx) == []
    a.pipe(name, "send").close()
    with b.pipe(name, "recv", peer=peer) as rx:
        assert list(rx) == []
    a.pipe(name, "send").close()
    with a.pipe(name, "send") as tx, b.pipe(name, "recv", peer=peer) as rx:
        tx.send_tensor(b"new")
        assert bytes(rx.recv_tensor(framework="raw").data) == b"new"


@pytest.mark.parametrize("how", ["for", "async for"])
@pytest.mark.parametrize("who", ["end", "session"])
def test_iteration_does_not_end_with_the_receiver(two, name, who, how):
    """It would look as if everything had come."""
    a, b, peer = two
    with a.pipe(name, "send", capacity=1000) as tx, b.pipe(name, "recv", peer=peer) as rx:
        for i in range(3):
            tx.send_tensor(bytes([i]))
        got, three = [], threading.Event()

        def take_in(tensor):
            got.append(tensor[0])
            if len(got) == 3:
                three.set()

        def run():
            for tensor in rx:
                take_in(tensor)

        async def run_async():
            async for tensor in rx:
                take_in(tensor)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ended = pool.submit(run if how == "for" else lambda: asyncio.run(run_async()))
            assert three.wait(PATIENCE)
            (rx if who == "end" else b).close()
            assert isinstance(ended.exception(PATIENCE), kvpipe.Closed) and got == [0, 1, 2]


def test_timeouts_say_the_whole_time(local, name):
    """Though the library waits in slices of it."""
    with local.pipe(name, "send", capacity=100) as tx, local.pipe(name, "recv") as rx:
        tx.send_tensor(bytes(100))
        for call in (lambda: tx.send_tensor(bytes(50), timeout=0.4), lambda: asyncio.run(tx.send_tensor_async(bytes(50), timeout=0.4))):
            with pytest.raises(kvpipe.Timeout, match="no room for 50 bytes within 400 ms: .* holds 100 of 100 bytes in 1 item that"):
                call()
        with pytest.raises(kvpipe.Timeout, match="1 item of .* was not received within 400 ms: "):
            tx.flush(0.4)
        rx.recv_tensor()
        with pytest.raises(kvpipe.Timeout, match="nothing came within 1.5 s: nothing was sent"):
            rx.recv_tensor(timeout=1.5)


def test_timeouts_say_the_time_given(local, name, monkeypatch):
    """Though most of it had passed before the first try."""
    deadline = _end.deadline
    monkeypatch.setattr(_end, "deadline", lambda timeout: deadline(timeout).later(-390_000_000))
    with local.pipe(name, "recv") as rx:
        for call in (lambda: rx.recv_tensor(timeout=0.4), lambda: asyncio.run(rx.recv_tensor_async(timeout=0.4))):
            with pytest.raises(kvpipe.Timeout, match="nothing came within 400 ms: "):
                call()


def test_500_rounds_in_both_directions(two):
    """Three tensors a round, one in twenty of them None, the direction by turns."""
    a, b, peer = two
    back = None if peer is None else b.advertise
    rng = random.Random(1)
    with a.pipe("there", "send") as ab, b.pipe("there", "recv", peer=peer) as ba, \
            b.pipe("back", "send") as there, a.pipe("back", "recv", peer=back) as here:
        for i in range(500):
            tx, rx = (ab, ba) if i % 10 > 3 else (there, here)
            sent = [None if rng.random() < 0.05 else numpy.full(rng.randrange(1, 2000), i + k, numpy.float32) for k in range(3)]
            for t in sent:
                tx.send_tensor(t)
            for t in sent:
                got = rx.recv_tensor(framework="numpy")
                assert (got is None) == (t is None)
                assert t is None or (got.dtype == t.dtype and numpy.array_equal(got, t))


def test_none_is_not_an_error_and_not_the_end(pipe, name):
    tx, rx = pipe
    tx.send_tensor(None)
    tx.send_tensor(numpy.zeros((0, 3)))
    tx.send_tensor(numpy.float16(4))
    tx.close()
    none, empty, scalar = list(rx)
    assert none is None and empty.shape == (0, 3) and scalar.shape == () and scalar == 4
    for _ in range(2):
        with pytest.raises(kvpipe.Closed, match=re.escape(name)):
            rx.recv_tensor()


def test_the_receiver_may_be_first(two, name):
    a, b, peer = two
    with b.pipe(name, "recv", peer=peer) as rx:
        with pytest.raises(kvpipe.Timeout, match=re.escape(name)):
            rx.recv_tensor(timeout=0)
        got = []
        thread = threading.Thread(target=lambda: got.append(rx.recv_tensor(framework="raw")))
        thread.start()
        with a.pipe(name, "send", capacity=4096) as tx:
            tx.send_tensor(b"first")
            thread.join(60)
            assert bytes(got[0].data) == b"first"


def test_back_pressure(pipe):
    tx, rx = pipe
    part = numpy.zeros(300_000, numpy.uint8)
    for _ in range(3):
        tx.send_tensor(part)
    with pytest.raises(kvpipe.Timeout, match="holds 900000 of 1048576 bytes in 3 items"):
        tx.send_tensor(part, timeout=0.01)
    tx.send_tensor(None, timeout=0)
    with pytest.raises(kvpipe.Timeout, match="4 items"):
        tx.flush(timeout=0)
    for _ in range(3):
        rx.recv_tensor()
    tx.send_tensor(part)
    with pytest.raises(kvpipe.Invalid, match="2000000 bytes, the capacity of .* is 1048576"):
        tx.send_tensor(numpy.zeros(2_000_000, numpy.uint8))
    assert rx.recv_tensor() is None and rx.recv_tensor().nbytes == 300_000
    tx.flush()


def test_a_timeout_loses_nothing(pipe):
    tx, rx = pipe
    for i in range(300):
        tx.send_tensor(numpy.array([i]))
    seen = []
    while len(seen) < 300:
        try:
            seen.append(int(rx.recv_tensor(timeout=0)[0]))
        except kvpipe.Timeout:
            select.select([rx.fileno()], [], [], 30)
    assert seen == list(range(300))


@pytest.mark.parametrize("how", ["recv_tensor", "recv_tensor_async"])
@pytest.mark.parametrize("where", ["waiting", "making the tensor"])
def test_an_interrupt_loses_nothing(pipe, monkeypatch, where, how):
    tx, rx = pipe

    def receive():
        got = getattr(rx, how)(timeout=60, framework="raw")
        return bytes((asyncio.run(got) if asyncio.iscoroutine(got) else got).data)

    def interrupted(*args):
        made(*args)
        raise KeyboardInterrupt

    tx.send_tensor(b"one")
    tx.send_tensor(b"two")
    with monkeypatch.context() as patch:
        if where == "waiting":
            made = rx._try
            patch.setattr(rx, "_try", interrupted)
        else:
            made = kvpipe.received._MAKERS["raw"]
            patch.setitem(kvpipe.received._MAKERS, "raw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            receive()
    assert [receive(), receive()] == [b"one", b"two"]


def test_threads_receive_each_item_once(pipe, monkeypatch):
    tx, rx = pipe
    read, both, got = kvpipe.Pipe._read, threading.Barrier(2), []

    def together(*args):
        both.wait(60)  # each of them has an item
        return read(*args)

    monkeypatch.setattr(kvpipe.Pipe, "_read", together)
    threads = [threading.Thread(target=lambda: got.append(bytes(rx.recv_tensor(framework="raw").data))) for _ in range(2)]
    for thread, item in zip(threads, (b"1", b"2")):
        tx.send_tensor(item)
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(got) == [b"1", b"2"]


def test_nobody_comes(two):
    _, b, peer = two
    with b.pipe("nobody", "recv", peer=peer) as rx:
        assert "no sender opened it" in why_late(lambda: rx.recv_tensor(timeout=3), 3)


def test_a_second_receiver_and_a_second_sender(two, name):
    a, b, peer = two
    with a.pipe(name, "send", capacity=4096) as tx, b.pipe(name, "recv", peer=peer, window=1) as rx:
        tx.send_tensor(b"1")
        tx.send_tensor(b"2")
        assert bytes(rx.recv_tensor(framework="raw").data) == b"1"
        with pytest.raises(kvpipe.Busy, match="has a receiver already"), b.pipe(name, "recv", peer=peer) as second:
            second.recv_tensor(timeout=60)
        with pytest.raises(kvpipe.Busy, match="has a sender already"):
            a.pipe(name, "send")
        rx.close()
        with b.pipe(name, "recv", peer=peer) as third:  # goes on where the first one was
            assert bytes(third.recv_tensor(framework="raw").data) == b"2"


def test_wrong_token(two, name):
    a, b, peer = two
    with a.pipe(name, "send", capacity=4096, token=b"0" * 16) as tx:
        tx.send_tensor(b"secret")
        for wrong in (None, b"1" * 16, b"0" * 32):
            with pytest.raises(kvpipe.Denied), b.pipe(name, "recv", peer=peer, token=wrong) as rx:
                rx.recv_tensor(timeout=60)
        with b.pipe(name, "recv", peer=peer, token=b"0" * 16) as rx:
            assert bytes(rx.recv_tensor(framework="raw").data) == b"secret"


def test_kept_tensors_hold_nothing_up(pipe):
    tx, rx = pipe
    kept = []
    for i in range(40):
        tx.send_tensor(numpy.full(100_000, i, numpy.uint8))
        kept.append(rx.recv_tensor())
    rx.close()
    tx.close()
    for i, t in enumerate(kept):  # also when the pipe is gone
        assert t.min() == t.max() == i
        t += 1


def test_memory_goes_back_with_the_tensor(local, name):
    with local.pipe(name, "send", capacity=1 << 20) as tx, local.pipe(name, "recv") as rx:
        for _ in range(200):
            tx.send_tensor(numpy.zeros(200_000, numpy.uint8))
            view = rx.recv_tensor(framework="raw").data[5:10]
            gc.collect(0)  # the tensor is young
            assert bytes(view) == bytes(5)  # a view keeps it


def test_many_threads(pipe):
    tx, rx = pipe
    seen = []

    def send(first):
        for i in range(100):
            tx.send_tensor(numpy.array([first + i]))

    def receive():
        for _ in range(100):
            seen.append(int(rx.recv_tensor()[0]))

    threads = [threading.Thread(target=send, args=(1000 * i,)) for i in range(3)]
    threads += [threading.Thread(target=receive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [1000 * i + k for i in range(3) for k in range(100)]


@pytest.mark.parametrize("who", ["end", "session"])
def test_close_ends_the_calls_of_others(local, who, name):
    tx, rx = local.pipe(name, "send", capacity=1000), local.pipe(name, "recv")
    tx.send_tensor(bytes(1000))
    caught, entered = [], threading.Barrier(3)

    def wait(call):
        entered.wait()
        try:
            call()
        except kvpipe.Error as error:
            caught.append(type(error))

    def receive_twice():
        rx.recv_tensor()
        rx.recv_tensor()

    threads = [threading.Thread(target=wait, args=(c,)) for c in (lambda: tx.send_tensor(bytes(1001 - 1)) or tx.flush(), receive_twice)]
    for thread in threads:
        thread.start()
    entered.wait()
    rx.close()
    if who == "session":
        local.close()
    tx.close()
    for thread in threads:
        thread.join(60)
    assert all(kind is kvpipe.Closed for kind in caught) and not any(t.is_alive() for t in threads)
    for call in (lambda: tx.send_tensor(None), rx.recv_tensor, tx.fileno):
        with pytest.raises(kvpipe.Closed, match="closed"):
            call()
    assert tx.closed and "closed" in repr(tx)


@pytest.mark.parametrize("who", ["ends", "session"])
def test_close_ends_the_tasks_of_others(local, who, name):
    with local.pipe(name, "send", capacity=1000) as tx, local.pipe(f"{name}/2", "recv") as rx, \
            local.lookup_buffer(name, capacity=1000) as own, local.lookup_buffer(name) as sel:
        tx.send_tensor(bytes(1000))
        own.insert(None, None, None, bytes(1000), None)

        def close():
            for thing in (tx, rx, own, sel) if who == "ends" else (local,):
                thing.close()

        async def main():
            tasks = [asyncio.ensure_future(call(timeout=10 * PATIENCE)) for call in (
                functools.partial(tx.send_tensor_async, bytes(1000)), tx.flush_async, rx.recv_tensor_async,
                functools.partial(own.insert_async, None, None, None, bytes(1000), None),
                functools.partial(sel.drop_select_async, numpy.array([1])), functools.partial(sel.get_async, "k"))]
            await asyncio.sleep(0)  # now each of them waits
            close()  # before the loop looks at a descriptor again
            _, late = await asyncio.wait(tasks, timeout=PATIENCE)
            assert not late, f"{len(late)} of {len(tasks)} tasks wait still"
            assert {type(task.exception()) for task in tasks} == {kvpipe.Closed}

        asyncio.run(main())


def test_asyncio(two, name):
    a, b, peer = two

    async def main():
        with a.pipe(name, "send", capacity=100_000) as tx, b.pipe(name, "recv", peer=peer) as rx:
            with pytest.raises(kvpipe.Timeout):
                await rx.recv_tensor_async(timeout=0.05)
            waiting = [asyncio.ensure_future(rx.recv_tensor_async()) for _ in range(3)]
            await asyncio.sleep(0)
            for i in range(3):
                await tx.send_tensor_async(numpy.array([i]))
            assert sorted(int(t[0]) for t in await asyncio.gather(*waiting)) == [0, 1, 2]

            async def send():
                for i in range(50):
                    await tx.send_tensor_async(numpy.full(40_000, i, numpy.uint8))
                tx.close()

            sending = asyncio.ensure_future(send())
            assert [int(t[0]) async for t in rx] == list(range(50))
            await sending

    asyncio.run(main())


def test_bad_arguments(local, name):
    for error, call in [
        ("end is 'both'", lambda: local.pipe(name, "both")),
        ("name is required", lambda: local.pipe("", "send")),
        ("longer than 256 bytes", lambda: local.pipe("x" * 257, "send")),
        ("name is 5", lambda: local.pipe(5, "send")),
        ("token: 3 bytes", lambda: local.pipe(name, "send", token=b"abc")),
        ("capacity is 10", lambda: local.pipe(name, "recv", capacity=10)),
        ("capacity is 0: must be at least 1, or None", lambda: local.pipe(name, "send", capacity=0)),
        ("window is 0: must be at least 1, or None", lambda: local.pipe(name, "recv", window=0)),
        ("window is 5000", lambda: local.pipe(name, "recv", window=5000)),
        ("peer is \"far\"", lambda: local.pipe(name, "send", peer="far")),
        ("linger_ns", lambda: local.pipe(name, "recv", linger=3)),
    ]:
        with pytest.raises(kvpipe.Invalid, match=error):
            call()
    with local.pipe(name, "send", capacity=4096) as tx, local.pipe(name, "recv") as rx:
        for error, call in [
            ("timeout is -1", lambda: tx.send_tensor(None, timeout=-1)),
            ("nothing waits for ever", lambda: tx.send_tensor(None, timeout=float("inf"))),
            ("framework is 'jax'", lambda: rx.recv_tensor(framework="jax")),
            ("receiving end", lambda: rx.send_tensor(None)),
            ("sending end", lambda: tx.recv_tensor()),
            ("list is no tensor", lambda: tx.send_tensor([1, 2])),
            ("dtype 'complex64' cannot be sent", lambda: tx.send_tensor(numpy.zeros(3, numpy.complex64))),
            ("17 dimensions: at most 16", lambda: tx.send_tensor(numpy.zeros((1,) * 17))),
            ("has 12 bytes, its buffer 3", lambda: tx.send_tensor(RawTensor("float32", (3,), b"abc"))),
            ("shape is 3: must be a tuple", lambda: tx.send_tensor(RawTensor("int8", 3, b"abc"))),
            ("shape.0. is 'a': must be an integer", lambda: tx.send_tensor(RawTensor("int8", ("a",), b"a"))),
            ("dtype is 5: must be a name", lambda: tx.send_tensor(RawTensor(5, (3,), b"abc"))),
        ]:
            with pytest.raises(kvpipe.Invalid, match=error):
                call()
