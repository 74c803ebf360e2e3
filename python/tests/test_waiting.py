"""Completions: poll, threads, descriptors, asyncio; closing while others wait."""

import asyncio
import gc
import os
import select
import signal
import sys
import threading
import types
import weakref

import kvpipe
import numpy
import pytest
from caches import Cache, collect
from kvpipe import _session, operation
from kvpipe._session import Session


def hand_over(pair, n, start=0, **more):
    producer, consumer = pair
    offers = [producer.node.offer(f"k{start + i}", [i], tokens=16, tag=100 + i) for i in range(n)]
    takes = [consumer.node.take(f"k{start + i}", [i], token=o.token, tokens=16, tag=i, **more) for i, o in enumerate(offers)]
    return offers, takes


def test_poll_and_fileno(pair):
    offers, takes = hand_over(pair, 8)
    got = collect(pair[1].node, 8)
    assert sorted(c.tag for c in got) == list(range(8)) and {c.op for c in got} == set(takes)
    assert all(t.done and t.wait(0) in got for t in takes)
    assert pair[1].node.poll() == []
    assert not select.select([pair[1].node.fileno()], [], [], 0)[0]
    assert len(collect(pair[0].node, 8)) == 8
    assert all(o.released for o in offers)


def test_poll_of_operations_that_nobody_holds(pair):
    offers, takes = hand_over(pair, 4)
    del takes
    got = collect(pair[1].node, 4)
    assert [c.op for c in got] == [None] * 4 and sorted(c.tag for c in got) == [0, 1, 2, 3]


def test_many_more_operations_than_records(pair):
    """Those that are not held any more are forgotten."""
    producer, consumer = pair
    for i in range(300):
        offer = producer.node.offer("k", [0], tokens=16)
        consumer.node.take("k", [0], token=offer.token, tokens=16).wait(60)
        offer.wait(60)
    assert len(producer.node._session.operations) <= 1 and len(producer.node._session.dropped) <= 2


def test_threads(pair):
    offers, takes = hand_over(pair, 16)
    results = {}

    def wait(i):
        results[i] = takes[i].wait(60), takes[i % 4].wait(60), offers[i].wait(60)

    threads = [threading.Thread(target=wait, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[i][0].tag == i and results[i][1].tag == i % 4 for i in range(16))


def test_gil_is_released_while_waiting(pair, monkeypatch):
    """One call that waits as long as the take may take: with the GIL held it would end by its timeout."""
    monkeypatch.setattr(operation, "SLICE_NS", 60_000_000_000)
    take = pair[1].node.take("never", [1], token=b"0" * 16, tokens=16, timeout=20)
    entered, caught = threading.Event(), []

    def wait():
        entered.set()
        try:
            take.wait()
        except kvpipe.Error as error:
            caught.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    assert take.cancel(60)
    thread.join()
    assert caught == [kvpipe.Cancelled]


@pytest.mark.parametrize("how", ["wait", "wait_async", "wait_layer", "wait_released"])
def test_close_ends_waiting(pair, how):
    take = pair[1].node.take("never", [1], token=b"0" * 16, tokens=16, layered=True)
    entered, caught = threading.Event(), []

    def wait():
        entered.set()
        try:
            if how == "wait_async":
                asyncio.run(take.wait_async())
            elif how == "wait_layer":
                take.wait_layer(0)
            else:
                getattr(take, how)()
        except kvpipe.Error as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    pair[1].close()
    thread.join(60)
    assert not thread.is_alive() and [type(e) for e in caught] == [kvpipe.Closed], caught
    for call in (pair[1].node.poll, pair[1].node.fileno, lambda: take.done, lambda: pair[1].node.progress(1)):
        with pytest.raises(kvpipe.Closed, match="connect again"):
            call()
    assert not pair[1].node.connected
    pair[1].close()


def test_a_node_that_another_thread_closes_is_not_connected(near, monkeypatch):
    """Also one that was open still when somebody looked."""
    node = kvpipe.connect(near.socket, engine_id="looked at")
    assert node.connected
    node.close()
    monkeypatch.setattr(Session, "closed", property(lambda _: False))
    assert not node.connected


def test_who_comes_while_a_session_closes_does_not_keep_it_open():
    class Door(threading.Condition):
        def wait_for(self, *args):
            alone = super().wait_for(*args)
            session._inside.append(-1)  # another thread, which finds no handle
            return alone

    freed = []
    session = Session(None, 7, free=freed.append)
    session._changed = Door()
    session.close()
    assert freed == [7]


def test_who_closes_a_session_that_another_thread_closes_waits_for_its_end():
    order, closing, waiting, go = [], threading.Event(), threading.Event(), threading.Event()

    class Door(threading.Condition):
        def wait(self, *args):
            waiting.set()
            return super().wait(*args)

    def free(_):
        session.close()  # as a signal handler does: there is nothing to wait for
        closing.set()
        assert go.wait(60)
        order.append("freed")

    def second():
        session.close()
        order.append("closed")
        waiting.set()

    session = Session(None, 7, free=free)
    threads = [threading.Thread(target=session.close), threading.Thread(target=second)]
    threads[0].start()
    assert closing.wait(60)
    session._changed = Door()
    threads[1].start()
    assert waiting.wait(60)
    go.set()
    for thread in threads:
        thread.join(60)
    assert order == ["freed", "closed"]


def test_a_region_goes_without_a_word_from_a_session_that_has_closed():
    """As when another thread closes the node while the region's close() is about to ask the daemon."""
    session = Session(None, 7, free=lambda _: None)
    session.close()
    session.regions[5] = None
    session.unregister(5, None)
    assert not session.regions


class Rang(Exception):
    """What a signal handler raises."""


def ring(*_):
    raise Rang


def test_an_interrupt_of_close_leaves_the_handle_to_who_is_inside():
    freed, inside, leave, closing = [], threading.Event(), threading.Event(), threading.Event()

    class Door(threading.Condition):
        def wait(self, *args):
            closing.set()
            super().wait(0)  # lets others in
            raise Rang

    def stay():
        with session:
            inside.set()
            assert leave.wait(60)

    session = Session(None, 7, free=freed.append)
    session._changed = Door()
    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(Rang):
        session.close()
    assert closing.is_set() and session.closed and freed == []
    leave.set()
    thread.join(60)
    assert freed == [7]
    session.close()
    assert freed == [7]


def test_an_interrupt_of_close_as_the_last_one_leaves():
    class Door(threading.Condition):
        def wait(self, *args):
            session._inside.remove(-1)
            session._left()
            raise Rang

    freed = []
    session = Session(None, 7, free=freed.append)
    session._changed = Door()
    session._inside.append(-1)  # another thread
    with pytest.raises(Rang):
        session.close()
    assert freed == [7]


@pytest.mark.parametrize("who", ["itself", "another"])
@pytest.mark.parametrize("where", ["before", "about"])
def test_an_interrupt_before_the_library_closes_leaves_that_to_the_next_close(monkeypatch, where, who):
    freed = []
    session = Session(None, 7, free=freed.append)
    with monkeypatch.context() as patch:
        if where == "before":
            patch.setattr(session, "_held", ring)
        else:
            patch.setattr(_session._said, "enter", ring)
        with pytest.raises(Rang):
            session.close()
    assert session.closed and freed == []
    if who == "another":
        closing = threading.Thread(target=session.close)
        closing.start()
        closing.join(60)
    else:
        session.close()
    assert freed == [7]
    session.close()
    assert freed == [7]


def test_who_closes_again_after_an_interrupt_waits_for_the_thread_inside():
    order, inside, waiting = [], threading.Event(), threading.Event()
    session = Session(None, 7, free=lambda _: order.append("freed"))

    def use():
        with session:
            inside.set()
            assert waiting.wait(60)

    class Interrupted(threading.Condition):
        def wait(self, *args):
            raise Rang

    class Door(threading.Condition):
        def wait(self, *args):
            waiting.set()
            return super().wait(*args)

    user = threading.Thread(target=use)
    user.start()
    assert inside.wait(60)
    session._changed = Interrupted()
    with pytest.raises(Rang):
        session.close()
    session._changed = Door()
    session.close()
    order.append("closed")
    user.join(60)
    assert order == ["freed", "closed"]


def test_an_interrupt_of_close_is_heard_and_the_session_ends(near):
    """A handler that raises as the main thread closes a node that another thread uses."""
    with Cache(near.socket, "interrupted") as cache:
        take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
        session, entered, leave = cache.node._session, threading.Event(), threading.Event()

        def stay():
            with session:
                entered.set()
                assert leave.wait(60)

        thread = threading.Thread(target=stay)
        thread.start()
        assert entered.wait(60)
        before = signal.signal(signal.SIGUSR1, ring)
        try:
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
            with pytest.raises(Rang):
                timer.start()
                cache.node.close()
            timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert cache.node._session.closed and cache.region.registered
        leave.set()
        thread.join(60)
        assert not cache.region.registered
        assert not [s for s in near.ask("sessions") if s["engine"] == "interrupted"]
        with pytest.raises(kvpipe.Closed):
            take.wait(60)


def test_an_interrupt_as_the_library_closes_skips_nothing(near):
    with Cache(near.socket, "interrupted") as cache:
        take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
        session, free = cache.node._session, cache.node._session._free

        def interrupted(handle):
            free(handle)
            raise Rang

        session._free = interrupted
        with pytest.raises(Rang):
            cache.node.close()
        assert not cache.region.registered and not session.regions and take.released


def test_operations_that_are_entered_while_a_session_closes_do_not_keep_it_open():
    """As of another thread, whose submission has left the library and is not waited for: one between any two lines of close()."""
    class Operation:
        def _abandon(self, *_):
            pass

        _free = _abandon

    def enters(*_):
        held.append(Operation())
        session.operations[len(held)] = held[-1]
        return enters

    freed, held, before = [], [], sys.gettrace()
    session = Session(None, 7, free=freed.append)
    enters(), enters()
    sys.settrace(enters)
    try:
        session.close()
    finally:
        sys.settrace(before)
    assert freed == [7] and len(held) > 10


@pytest.mark.parametrize("where", ["keep", "enter", "leave"])
def test_nobody_whom_an_interrupt_keeps_out_is_inside(monkeypatch, where):
    """Nor is who was interrupted on the way out: close() would wait for either."""
    def interrupted(*args, plain=getattr(_session._said, where, None)):
        if plain is not None:
            plain(*args)
        raise Rang

    freed = []
    session = Session(None, 7, free=freed.append)
    with monkeypatch.context() as patch:
        if where == "keep":
            patch.setattr(_session, "unread", types.SimpleNamespace(raws=()))
            patch.setattr(_session, "keep", interrupted)
        else:
            patch.setattr(_session._said, where, interrupted)
        with pytest.raises(Rang), session:
            pass
    assert session._inside == [] and _session._said.depth() == 0
    session.close()
    assert freed == [7]


def test_memory_of_a_session_that_is_closed_from_inside_stays_to_its_end(near):
    """As in a signal handler: the library has the session until the call is over, and the daemon may write."""
    with kvpipe.connect(near.socket, engine_id="inside") as node:
        memory = numpy.zeros(1 << 24, dtype=numpy.uint8)
        region, kept = node.adopt(memory), weakref.ref(memory)
        del memory
        with node._session:
            node.close()
            gc.collect()
            assert kept() is not None and region.registered
        gc.collect()
        assert kept() is None and not region.registered


def test_a_signal_interrupts_waiting(pair):
    take = pair[1].node.take("never", [1], token=b"0" * 16, tokens=16)
    before = signal.signal(signal.SIGUSR1, ring)
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        with pytest.raises(Rang):
            timer.start()
            take.wait(60)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert take.cancel(60)


def test_a_signal_handler_may_close(pair):
    take = pair[1].node.take("never", [1], token=b"0" * 16, tokens=16)
    before = signal.signal(signal.SIGUSR1, lambda *_: pair[1].close())
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(kvpipe.Closed):
            take.wait(60)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_asyncio(pair):
    async def main():
        offers, takes = hand_over(pair, 20)
        done = await asyncio.gather(*[t.wait_async() for t in takes], *[takes[0].wait_async(60) for _ in range(3)])
        assert [c.tag for c in done] == [*range(20), 0, 0, 0]
        await asyncio.gather(*[o.wait_async(60) for o in offers])
        never = pair[1].node.take("never", [30], token=b"0" * 16, tokens=16)
        with pytest.raises(kvpipe.Timeout) as error:
            await never.wait_async(0.05)
        assert error.value.completion is None
        for bad in (-1, float("nan"), "soon"):
            with pytest.raises(kvpipe.Invalid, match="timeout is"):
                await never.wait_async(bad)
        first, second = asyncio.ensure_future(never.wait_async()), asyncio.ensure_future(never.wait_async())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await asyncio.get_running_loop().run_in_executor(None, never.cancel, 10)
        with pytest.raises(kvpipe.Cancelled):
            await second
        with pytest.raises(kvpipe.Cancelled):
            await never.wait_async()

    asyncio.run(main())
    assert not pair[0].node._session.listeners and not pair[1].node._session.listeners


class Counting:
    """A listener's ear, with how often its loop was woken."""

    def __init__(self, session):
        listener = session.listeners[asyncio.get_running_loop()]
        self._plain, self.wakes = listener._epoll, 0
        listener._epoll = self

    def poll(self, timeout):
        self.wakes += 1
        return self._plain.poll(timeout)

    def __getattr__(self, name):
        return getattr(self._plain, name)


def test_asyncio_beside_completions_that_nobody_collects(pair):
    """They keep the descriptor readable; tasks must neither spin nor miss anything."""
    producer, consumer = pair
    _, ignored = hand_over(pair, 3)

    async def main():
        for i in range(5):
            offer = producer.node.offer(f"more{i}", [8], tokens=16)
            await consumer.node.take(f"more{i}", [9 + i], token=offer.token, tokens=16).wait_async(60)
        assert not consumer.node._session.listeners
        never = consumer.node.take("never", [30], token=b"0" * 16, tokens=16)
        task = asyncio.ensure_future(never.wait_async())
        await asyncio.sleep(0)
        ear = Counting(consumer.node._session)
        for _ in range(200):
            await asyncio.sleep(0)
        assert ear.wakes <= 2
        never.cancel(60)
        with pytest.raises(kvpipe.Cancelled):
            await task

    asyncio.run(main())
    tags = {c.tag for c in collect(consumer.node, 3)}
    assert tags >= {0, 1, 2} and all(t.done for t in ignored)


def test_the_end_of_a_session_is_heard(near):
    """By who only listens as well, at every look. Tasks hear the ends of their operations, and do not spin afterwards."""
    with Cache(near.socket, "ends", instance="one") as idle, Cache(near.socket, "ends too", instance="one") as busy:
        takes = [busy.node.take(f"never{i}", [i], token=b"0" * 16, tokens=16) for i in range(2)]

        async def main():
            loop, heard = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(idle.node.fileno(), heard.set)
            tasks = [asyncio.ensure_future(take.wait_async(60)) for take in takes]
            await asyncio.sleep(0)
            ear = Counting(busy.node._session)
            with Cache(near.socket, "ends", instance="two"), Cache(near.socket, "ends too", instance="two"):
                await asyncio.wait_for(heard.wait(), 60)
                loop.remove_reader(idle.node.fileno())
                assert all(isinstance(e, kvpipe.Closed) for e in await asyncio.gather(*tasks, return_exceptions=True))
            assert ear.wakes < 20

        asyncio.run(main())
        for _ in range(2):
            assert select.select([idle.node.fileno()], [], [], 60)[0]
            with pytest.raises(kvpipe.Closed, match="two"):
                idle.node.poll()


def test_asyncio_while_another_thread_polls(pair):
    """Whoever sees a completion first, the tasks hear of it."""
    stop, seen = threading.Event(), []

    def poll():
        while not stop.is_set():
            seen.extend(pair[1].node.poll())

    thread = threading.Thread(target=poll)
    thread.start()

    async def main():
        for turn in range(10):
            _, takes = hand_over(pair, 8, start=turn * 8)
            done = await asyncio.gather(*[t.wait_async(60) for t in takes])
            assert [c.tag for c in done] == list(range(8))

    try:
        asyncio.run(main())
    finally:
        stop.set()
        thread.join()


def test_asyncio_in_two_loops(pair):
    """Neither of them in the main thread, both on one session."""
    _, takes = hand_over(pair, 8)
    results = []

    def run(part):
        async def main():
            return await asyncio.gather(*[t.wait_async(60) for t in part])

        results.extend(asyncio.run(main()))

    threads = [threading.Thread(target=run, args=(takes[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(c.tag for c in results) == list(range(8))


class Strict(asyncio.SelectorEventLoop):
    """Raises once it is closed, as uvloop's does, where asyncio's own has nothing to say."""

    def remove_reader(self, fd):
        self._check_closed()
        return super().remove_reader(fd)


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Strict])
def test_a_loop_that_is_closed_while_tasks_wait(pair, name, kind):
    """They end after it, by the garbage collector or the interpreter's end."""
    node, loop = pair[1].node, kind()
    with node.pipe(name, "recv") as rx:
        never = node.take("never", [30], token=b"0" * 16, tokens=16)
        waits = never.wait_async(60), rx.recv_tensor_async(60)
        tasks = [loop.create_task(wait) for wait in waits]
        loop.run_until_complete(asyncio.sleep(0))
        ears = *node._session.listeners.values(), *rx._listeners.values()
        loop.close()
        for wait in waits:
            wait.close()
        assert len(ears) == 2 and all(ear._epoll.closed for ear in ears) and not never._waiting
        assert not node._session.listeners and not rx._listeners
        for task in tasks:
            task._log_destroy_pending = False  # as is meant


def test_progress_says_what_it_cannot(pair):
    with pytest.raises(kvpipe.Unavailable, match="CUDA streams"):
        pair[0].node.progress(1, stream=object())
    pair[0].node.progress(5)
    pair[0].node.progress(3)  # never moves back, and is no error
    with pytest.raises(kvpipe.Invalid):
        pair[0].node.progress(-1)


def test_an_end_just_as_wait_async_gives_up(pair):
    """Another thread's poll() takes the waiter's entry while it takes it back."""
    take = pair[1].node.take("never", [1], token=b"0" * 16, tokens=16)

    class Raced(list):
        def remove(self, entry):
            other = threading.Thread(target=take._wake)
            other.start()
            other.join()
            super().remove(entry)

    take._waiting = Raced()
    with pytest.raises(kvpipe.Timeout):
        asyncio.run(take.wait_async(0.01))
    assert take._waiting == [] and not take._session.listeners
