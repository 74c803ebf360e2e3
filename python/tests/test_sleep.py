"""Engines that sleep: regions give their memory up for a while, under their name, at their address and with their layout."""

import ctypes
import fcntl
import itertools
import mmap
import os
import pathlib
import signal
import threading
import time

import kvpipe
import pytest
from caches import BLOCK_SIZE, Cache, view
from daemons import Daemon
from engines import Engine, usage

numpy = pytest.importorskip("numpy")

BLOCKS = list(range(8))
TOKENS = BLOCK_SIZE * len(BLOCKS)
TOKEN = b"0123456789abcdef"
STEP = 1 << 16
MIB = 1 << 20
numbers = itertools.count()


@pytest.fixture(params=["local", "tcp"])
def ends(request, near, far):
    """(producer, consumer, the producer's name for the consumer)"""
    apart = request.param == "tcp"
    with Cache(near.socket, "p") as p, Cache((far if apart else near).socket, "d") as d:
        yield p, d, "near" if apart else None


def hand_over(p, d, peer, salt):
    """Byte for byte, into blocks that had something else."""
    for block in BLOCKS:
        p.fill(block, salt + block)
        d.fill(block, salt + block + 100)
    key = f"hand over {next(numbers)}"  # a consumed key is remembered for a while
    offer = p.node.offer(key, BLOCKS, tokens=TOKENS, token=TOKEN)
    d.node.take(key, BLOCKS, peer=peer, token=TOKEN, tokens=TOKENS).wait(60)
    assert all(d.holds(block, salt + block) for block in BLOCKS)
    offer.wait(60)


def resident(region):
    """KiB of the region that are in this process."""
    smaps = pathlib.Path("/proc/self/smaps").read_text().split(f"{region.address:x}-")[1]
    return int(smaps.split("\nRss:")[1].split()[0])


def allocated(region):
    """Bytes of its file, whoever maps it; None where the kernel does not tell."""
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    where = next(line.split()[0] for line in maps if line.startswith(f"{region.address:x}-"))
    try:
        return os.stat(f"/proc/self/map_files/{where}").st_blocks * 512
    except PermissionError:
        return None


def refused(region, call):
    with pytest.raises(kvpipe.Unavailable, match=f"region {region.id:#x} of the layout of rank 0 is invalid.*revalidate it first"):
        call()


@pytest.mark.parametrize("sleeps", ["producer", "consumer", "both"])
def test_a_hand_over_before_and_after(ends, sleeps):
    p, d, peer = ends
    hand_over(p, d, peer, 1)
    for salt in (20, 40):  # and once more
        regions = [cache.region for cache in {"producer": [p], "consumer": [d], "both": [p, d]}[sleeps]]
        addresses = [region.address for region in regions]
        for region in regions:
            region.invalidate()
        for region in regions:
            region.revalidate()
        assert [region.address for region in regions] == addresses
        hand_over(p, d, peer, salt)


def test_meanwhile_everything_is_refused(ends):
    p, d, peer = ends
    p.region.invalidate(), d.region.invalidate()
    assert not p.region.valid and p.region.registered and "invalid" in repr(p.region)
    refused(p.region, p.node.offer("k", BLOCKS, tokens=TOKENS, token=TOKEN).wait)
    refused(d.region, d.node.take("k", BLOCKS, peer=peer, token=TOKEN, tokens=TOKENS).wait)
    p.region.revalidate(), d.region.revalidate()
    assert p.region.valid and "invalid" not in repr(p.region)
    hand_over(p, d, peer, 5)


def test_a_scheduler_is_refused_too(near):
    with Cache(near.socket, "p") as p, kvpipe.connect(near.socket, engine_id="p", role="scheduler") as scheduler:
        offer = scheduler.offer("k", BLOCKS, tokens=TOKENS, token=TOKEN)
        while not near.ask("offers"):  # another session's ring: read when it is read
            pass
        p.region.invalidate()
        with pytest.raises(kvpipe.Unavailable, match='memory of rank 0 of engine "p" .* was invalidated while the operation used it'):
            offer.wait(60)
        refused(p.region, scheduler.offer("k2", BLOCKS, tokens=TOKENS, token=TOKEN).wait)
        p.region.revalidate()
        scheduler.offer("k2", BLOCKS, tokens=TOKENS, token=TOKEN).withdraw()


def test_memory_goes_back_to_the_system_and_comes_again(near):
    with kvpipe.connect(near.socket, engine_id="memory") as node:
        region = node.alloc(4 * MIB, huge=False)
        numpy.frombuffer(region, numpy.uint8)[:] = 7
        mapped = usage(near)[1]
        assert resident(region) == 4096 and allocated(region) in (4 * MIB, None)
        region.invalidate()
        assert resident(region) == 0 and allocated(region) in (0, None)
        assert usage(near)[1] == mapped - 1
        (shown,) = [r for r in near.ask("regions") if r["engine"] == "memory"]
        assert shown["invalid"] and shown["bytes"] == 4 * MIB
        region.revalidate()
        assert resident(region) == 4096 and allocated(region) in (4 * MIB, None)
        assert usage(near)[1] == mapped
        words = numpy.frombuffer(region, numpy.uint8)
        words[:] = 9
        assert int(words.sum()) == 9 * 4 * MIB
        del words


def test_pages_that_are_locked_stay_and_that_is_said(near):
    libc = ctypes.CDLL(None, use_errno=True)
    with kvpipe.connect(near.socket, engine_id="locked") as node:
        region = node.alloc(4096, huge=False)
        place = ctypes.c_void_p(region.address), ctypes.c_size_t(4096)
        assert libc.mlock(*place) == 0
        with pytest.raises(kvpipe.Unavailable, match="the region is invalid, but its pages stay: .*unlock it and call again"):
            region.invalidate()
        assert not region.valid and resident(region) == 4
        assert libc.munlock(*place) == 0
        region.invalidate()
        assert resident(region) == 0
        region.revalidate()


@pytest.mark.parametrize("sleeps", ["producer", "consumer"])
def test_what_is_in_flight_ends_first(ends, sleeps):
    p, d, peer = ends
    offer = p.node.offer("k", [], tokens=0, sealed=False, token=TOKEN)
    offer.extend(BLOCKS, tokens=TOKENS, after=STEP, layered=True, sealed=True)
    for block in BLOCKS:
        p.fill(block, block)
    p.node.progress(STEP | 1)  # one layer of two
    take = d.node.take("k", BLOCKS, peer=peer, token=TOKEN, tokens=TOKENS, layered=True)
    take.wait_layer(0, 60)
    mine, theirs = (offer, take) if sleeps == "producer" else (take, offer)
    region = p.region if sleeps == "producer" else d.region
    region.invalidate()
    with pytest.raises(kvpipe.Unavailable, match="was invalidated while the operation used it"):
        mine.wait(0)  # it has ended by now
    assert mine.released
    if sleeps == "producer":
        with pytest.raises(kvpipe.Error, match="was invalidated while the operation used it"):
            theirs.wait(60)
    else:
        assert not theirs.done  # others may take it
        theirs.withdraw()
    region.revalidate()
    p.node.progress(2 * STEP)
    hand_over(p, d, peer, 50)


@pytest.fixture
def nodes(folder):
    daemon = Daemon(folder / f"sl{len(list(folder.iterdir()))}", "sleep", folder / "ca",
                    config=f'[limits]\nsession_pinned = "{MIB}B"\n')
    yield daemon
    if daemon.process.poll() is None:
        daemon.stop()


def restart(daemon, *sessions):
    daemon.kill()
    for node in sessions:
        while node.connected:
            os.sched_yield()
    daemon.start()
    for node in sessions:
        while not node.connected:
            os.sched_yield()


def test_an_invalid_region_is_one_to_the_next_daemon(nodes):
    with Cache(nodes.socket, "p") as p, Cache(nodes.socket, "d") as d:
        p.region.invalidate()
        restart(nodes, p.node, d.node)
        assert {r["engine"]: r["invalid"] for r in nodes.ask("regions")} == {"p": True, "d": False}
        with pytest.raises(kvpipe.Unavailable, match="is invalid"):
            p.node.offer("k", BLOCKS, tokens=TOKENS, token=TOKEN).wait(60)
        p.region.revalidate()
        hand_over(p, d, None, 3)  # with the layout of before
        d.region.invalidate(), d.region.revalidate()
        restart(nodes, p.node, d.node)
        hand_over(p, d, None, 30)


def test_without_a_daemon(nodes):
    with Cache(nodes.socket, "p") as p, Cache(nodes.socket, "d") as d:
        nodes.kill()
        for node in (p.node, d.node):
            while node.connected:
                os.sched_yield()
        p.region.invalidate(), d.region.invalidate()  # nothing touches them
        assert resident(p.region) == 0
        with pytest.raises(kvpipe.Unavailable, match="went away"):
            p.region.revalidate(timeout=0.05)
        assert p.region.valid and resident(p.region) > 0
        nodes.start()
        d.region.revalidate(timeout=60)
        while not p.node.connected:
            os.sched_yield()
        hand_over(p, d, None, 3)


@pytest.mark.parametrize("first", ["the scheduler", "the rank"])
def test_what_a_scheduler_brings_along_is_not_about_other_memory(nodes, first):
    with Cache(nodes.socket, "p") as p, Engine(nodes.socket, "p", scheduler=True) as scheduler:
        scheduler.ask(f"offer = node.offer('k', {BLOCKS}, tokens={TOKENS}, token={TOKEN!r}, lease=600)")
        while not nodes.ask("offers"):
            pass
        scheduler.signal(signal.SIGSTOP)
        nodes.kill()
        while p.node.connected:
            os.sched_yield()
        p.region.invalidate()
        with pytest.raises(kvpipe.Unavailable, match="went away"):
            p.region.revalidate(timeout=0.05)
        if first == "the scheduler":
            scheduler.signal(signal.SIGCONT)
        nodes.start()
        while not p.node.connected:
            os.sched_yield()
        scheduler.signal(signal.SIGCONT)
        with pytest.raises((kvpipe.Restarted, kvpipe.Unavailable)):
            scheduler.ask("offer.wait(60)")
        assert nodes.ask("offers") == []


def test_quota(nodes):
    with kvpipe.connect(nodes.socket, engine_id="q") as node:
        first = node.alloc(MIB)
        with pytest.raises(kvpipe.Quota):
            node.alloc(4096)
        first.invalidate()
        second = node.alloc(4096)
        with pytest.raises(kvpipe.Quota, match="limits.session_pinned"):
            first.revalidate()
        assert not first.valid and resident(first) == 0
        second.close()
        first.revalidate()
        assert first.valid


def test_calls_in_any_order(near):
    with Cache(near.socket, "p") as p:
        p.region.revalidate()
        p.region.invalidate(), p.region.invalidate()
        p.region.revalidate(), p.region.revalidate()
        p.region.invalidate()
        p.region.close()
        for call in (p.region.invalidate, p.region.revalidate):
            with pytest.raises(kvpipe.Closed, match="the region is closed"):
                call()
    with kvpipe.connect(near.socket, engine_id="p") as node:
        region = node.alloc(4096)
    with pytest.raises(kvpipe.Closed):
        region.invalidate()


def test_threads(near):
    with Cache(near.socket, "p") as p:
        failed = []

        def turn(calls):
            try:
                for i in range(60):
                    calls[i % 2]()
            except BaseException as error:
                failed.append(error)

        ways = [p.region.invalidate, p.region.revalidate]
        threads = [threading.Thread(target=turn, args=(calls,)) for calls in (ways, ways[::-1])]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not failed
        p.region.revalidate()
        assert memoryview(p.region)[0] == 0


@pytest.mark.parametrize("what", ["invalidate", "revalidate"])
def test_who_waits_for_another_thread_does_not_wait_longer_than_it_said(near, monkeypatch, what):
    with Cache(near.socket, "two") as cache:
        began, end = threading.Event(), threading.Event()

        def slow(*_):
            began.set()
            assert end.wait(60)

        monkeypatch.setattr(cache.node._session, "invalidate", slow)
        first = threading.Thread(target=cache.region.invalidate, kwargs={"timeout": 60})
        first.start()
        assert began.wait(60)
        giving_up = threading.Timer(30, end.set)
        giving_up.start()
        try:
            start = time.monotonic()
            with pytest.raises(kvpipe.Timeout, match=f"{what}: another thread"):
                getattr(cache.region, what)(timeout=0.2)
            assert 0.2 <= time.monotonic() - start < 20 and cache.region.valid
        finally:
            giving_up.cancel(), end.set(), first.join(60)
        giving_up.join(60)
        assert not cache.region.valid


def test_what_is_changing_is_not_closed(near, monkeypatch):
    """close() would unmap what another thread is about to give back to the system: by then another mapping may be there."""
    with kvpipe.connect(near.socket, engine_id="changing") as node:
        region = node.alloc(4096)
        changes = []

        def change(name):
            before = getattr(region, name)

            def closing():
                with pytest.raises(kvpipe.Busy, match="another thread"):
                    region.close()
                changes.append(name)
                before()

            monkeypatch.setattr(region, name, closing)

        change("_give_back")
        change("_have_back")
        region.invalidate()
        region.revalidate()
        assert changes == ["_give_back", "_have_back"] and region.registered
        region.close()
        region.close()
        assert not region.registered


@pytest.mark.parametrize("step", ["_give_back", "_have_back"])
def test_the_session_is_closed_while_a_region_changes(near, monkeypatch, step):
    """As there: the memory is unmapped once the thread that changes it is done, which hears that it is closed."""
    node = kvpipe.connect(near.socket, engine_id="changing")
    region, other = node.alloc(4096), node.alloc(4096)
    before, seen = getattr(region, step), []

    def closing():
        closer = threading.Thread(target=node.close)
        closer.start()
        closer.join()
        seen.append((region.closed, other.closed))
        before()

    if step == "_have_back":
        region.invalidate()
        monkeypatch.setattr(region, step, closing)
        with pytest.raises(kvpipe.Closed):
            region.revalidate()
    else:
        monkeypatch.setattr(region, step, closing)
        region.invalidate()
    assert seen == [(False, True)]
    assert region.closed and not region.registered
    region.close()
    with pytest.raises(kvpipe.Closed, match="the region is closed"):
        region.revalidate()


def test_a_session_that_ends_under_threads_that_change_regions(near):
    """Each call ends well, or says that it is closed; the memory that comes to lie there is left alone."""
    for _ in range(30):
        node = kvpipe.connect(near.socket, engine_id="changing")
        regions = [node.alloc(MIB, huge=False) for _ in range(3)]
        begun, ended = threading.Semaphore(0), []

        def turn(region):
            try:
                while True:
                    region.invalidate()
                    begun.release()
                    region.revalidate()
            except BaseException as error:
                ended.append(error)

        threads = [threading.Thread(target=turn, args=(region,)) for region in regions]
        [thread.start() for thread in threads]
        [begun.acquire() for _ in threads]
        node.close()
        others = [numpy.full(MIB, 7, numpy.uint8) for _ in regions]
        [thread.join() for thread in threads]
        assert [type(error) for error in ended] == [kvpipe.Closed] * 3, ended
        assert all((other == 7).all() for other in others)
        assert not any(region.registered or not region.closed for region in regions)


def test_memory_of_the_programs_own_stays_and_must_be_whole(near):
    fd = os.memfd_create("own", os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, MIB)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0x0002)
        with kvpipe.connect(near.socket, engine_id="own") as node:
            region = node.register_fd(fd, MIB)
            region[5] = 7
            region.invalidate()
            assert region[5] == 7 and os.fstat(fd).st_blocks * 512 == MIB
            region.madvise(mmap.MADV_REMOVE)
            assert os.fstat(fd).st_blocks == 0
            with pytest.raises(kvpipe.Invalid, match="sparse"):
                region.revalidate()
            assert not region.valid
            os.posix_fallocate(fd, 0, MIB)
            region.revalidate()
            region.close()
    finally:
        os.close(fd)


def test_adopted_memory(near):
    array = numpy.arange(40 * MIB // 8, dtype=numpy.uint64)
    with kvpipe.connect(near.socket, engine_id="adopts") as node:
        region = node.adopt(array)
        region.invalidate()
        assert not region.valid and "invalid" in repr(region)
        array += 1  # it is the program's
        region.revalidate()
        assert region.valid and int(array[-1]) == len(array)


def test_a_dead_schedulers_offers_end_with_the_memory(near):
    with Cache(near.socket, "p") as p, Cache(near.socket, "d") as d:
        with Engine(near.socket, "p", scheduler=True) as scheduler:
            scheduler.ask(f"offer = node.offer('orphan', {BLOCKS}, tokens={TOKENS}, token={TOKEN!r})")
            scheduler.signal(signal.SIGKILL)
        while [o["state"] for o in near.ask("offers")] != ["orphaned"]:
            pass
        p.region.invalidate()
        assert near.ask("offers") == []
        with pytest.raises(kvpipe.Error):
            d.node.take("orphan", BLOCKS, token=TOKEN, tokens=TOKENS, timeout=1).wait(60)


def test_two_regions_of_one_layout(near):
    with kvpipe.connect(near.socket, engine_id="two") as node:
        regions = [node.alloc(32 * 2048) for _ in range(2)]
        node.set_layout([view(region, layer=i, base=0) for i, region in enumerate(regions)], {})
        for region in regions:
            region.invalidate()
        regions[0].revalidate()
        refused(regions[1], node.offer("k", [1], tokens=16).wait)
        regions[1].revalidate()
        node.offer("k", [1], tokens=16).withdraw()
