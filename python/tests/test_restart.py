"""Daemons that are killed, stopped and started again under running engines, which go on as if nothing had been."""

import contextlib
import fcntl
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import kvpipe
import pytest
from caches import BLOCK_SIZE, Cache, collect, view
from daemons import Daemon, own_address
from engines import LATE, Engine, until

BLOCKS = 8
TOKENS = BLOCKS * BLOCK_SIZE
TOKEN = b"0123456789abcdef"
IDS, BACKWARDS = list(range(BLOCKS)), list(range(BLOCKS))[::-1]


@pytest.fixture(params=["local", "tcp"])
def nodes(request, folder):
    """(producer's daemon, consumer's daemon, the producer's name for the consumer), to be killed at will. After "local" or "tcp" may stand how
    long their takes wait for an offer."""
    n = len(list(folder.iterdir()))
    where, _, wait = request.param.partition(" ")
    quick = '[peers]\ndial_max = "500ms"\n[advanced]\ndrain_wait = "100ms"\n' + (f'[offers]\noffer_wait = "{wait}"\n' if wait else "")
    daemons = [Daemon(folder / f"rp{n}", f"rp{n}", folder / "ca", config=quick)]
    peer = None
    if where == "tcp":
        peer = daemons[0].node
        address = daemons[0].ask("status")["advertise"]
        daemons.append(Daemon(folder / f"rc{n}", f"rc{n}", folder / "ca", [f"{peer}={address}"], config=quick))
    yield daemons[0], daemons[-1], peer
    for daemon in daemons:
        if daemon.process.poll() is None:
            daemon.stop()


def back(node):
    """Waits until a session has its daemon again."""
    until(lambda: node.connected, "the session is back")


def away(node):
    """Waits until a session has noticed that its daemon is gone."""
    until(lambda: not node.connected, "the daemon's death is noticed")


def restart(daemons, nodes, how):
    for daemon in daemons:
        daemon.kill() if how == "kill" else daemon.stop()
    for node in nodes:
        away(node)
    for daemon in daemons:
        daemon.start()
    for node in nodes:
        back(node)


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize(("nodes", "which"), [("local", "both"), ("tcp", "producer"), ("tcp", "consumer"), ("tcp", "both")],
                         indirect=["nodes"])
def test_offers_and_takes_that_wait_go_on(nodes, which, how):
    near, far, peer = nodes
    with Cache(near.socket, "p") as p, Cache(far.socket, "d") as d:
        [p.fill(i, i) for i in IDS]
        waits = d.node.take("later", BACKWARDS, peer=peer, token=TOKEN, tokens=TOKENS, timeout=60)
        offer = p.node.offer("k", IDS[:4], tokens=TOKENS // 2, token=TOKEN, sealed=False)
        offer.extend(IDS[4:], tokens=TOKENS, sealed=True)
        for _ in range(2):  # and once more
            daemons = {"producer": [near], "consumer": [far], "both": list({near, far})}[which]
            restart(daemons, [c.node for c in (p, d) if (near if c is p else far) in daemons], how)
        later = p.node.offer("later", IDS, tokens=TOKENS, token=TOKEN)
        waits.wait(60)
        assert all(d.holds(BLOCKS - 1 - i, i) for i in IDS)
        later.wait(60)
        [memoryview(d.block(layer, i)).__setitem__(slice(None), bytes(d.size)) for i in IDS for layer in range(2)]
        d.node.take("k", IDS, peer=peer, token=TOKEN, tokens=TOKENS, timeout=60).wait(60)
        assert all(d.holds(i, i) for i in IDS)
        offer.wait(60)
        assert offer.released and waits.released
        assert [(c.status, c.reason) for c in p.node.poll() + d.node.poll()] == []


@pytest.mark.parametrize("nodes", ["local"], indirect=True)
def test_of_an_extension_that_was_not_answered_nobody_knows_and_the_next_says_so(nodes):
    with Cache(nodes[0].socket, "p") as p:
        offer = p.node.offer("k", IDS[:4], tokens=TOKENS // 2, token=TOKEN, sealed=False)
        nodes[0].kill()
        away(p.node)
        with pytest.raises(kvpipe.Timeout, match="start it again"):
            offer.extend(IDS[4:], tokens=TOKENS, timeout=0.05)
        nodes[0].start()
        back(p.node)
        with pytest.raises(kvpipe.Invalid, match=r"may be part of the offer or not: withdraw\(\) it"):
            offer.extend(IDS[4:], tokens=TOKENS)
        assert offer.withdraw()


@pytest.mark.parametrize("absence", [0, 5], ids=["a moment", "seconds"])  # the library asks often at first, and less often the longer it takes
def test_back_two_seconds_after_the_daemon(folder, absence):
    """Sessions, regions, layouts and live offers: all that a take needs that is asked for once the daemon is back. Time fails no other test, but this
    is a promise with a bound. What a busy machine takes is not kvpipe's, so the best of a few restarts counts: who asks too seldom, or sends something
    too late, is late each time. The time counts from the moment in which the daemon's socket was made, and not from when it said that it is ready."""
    n, took = len(list(folder.iterdir())), []
    daemon = Daemon(folder / f"r2{n}", f"r2{n}", folder / "ca")
    try:
        with Cache(daemon.socket, "p") as p, Cache(daemon.socket, "d") as d:
            while len(took) < 5 and min(took, default=2) >= 2:
                key, salt = f"k{len(took)}", len(took)
                [p.fill(i, salt + i) for i in IDS]
                offer = p.node.offer(key, IDS, tokens=TOKENS, token=TOKEN)
                daemon.kill()
                away(p.node)
                away(d.node)
                if absence:
                    with pytest.raises(kvpipe.Timeout):
                        d.node.take("nobody's", IDS, token=TOKEN, tokens=TOKENS, timeout=absence).wait(60)
                daemon.start()
                d.node.take(key, IDS, token=TOKEN, tokens=TOKENS, timeout=60).wait(60)
                took.append(time.time() - os.stat(daemon.socket).st_mtime)
                assert all(d.holds(i, salt + i) for i in IDS)
                offer.wait(60)
    finally:
        daemon.stop()
    assert min(took) < 2, f"seconds from the daemon's return to the end of a take: {took}"


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("which", ["producer", "consumer"])
def test_a_take_with_bytes_fails_and_the_offer_serves_the_next(nodes, which, how):
    near, far, peer = nodes
    with Cache(near.socket, "p") as p, Cache(far.socket, "d") as d:
        [p.fill(i, i) for i in IDS]
        offer = p.node.offer("k", [], tokens=0, token=TOKEN, sealed=False)
        offer.extend(IDS, tokens=TOKENS, after=1 << 16, layered=True, sealed=True)
        p.node.progress(1 << 16 | 1)
        take = d.node.take("k", IDS, peer=peer, token=TOKEN, tokens=TOKENS, timeout=60, layered=True)
        take.wait_layer(0, 60)
        victim = near if which == "producer" else far
        victim.kill() if how == "kill" else victim.stop()
        with pytest.raises(kvpipe.Restarted if victim is far else kvpipe.PeerGone):
            take.wait(60)
        take.wait_released(60)
        victim.start()
        back(p.node)
        back(d.node)
        again = d.node.take("k", BACKWARDS, peer=peer, token=TOKEN, tokens=TOKENS, timeout=60)
        p.node.progress(1 << 16 | 2)  # goes on where it was
        again.wait(60)
        assert all(d.holds(BLOCKS - 1 - i, i) for i in IDS)
        offer.wait(60)


@pytest.mark.parametrize("nodes", ["local 2s", "tcp 2s"], indirect=True)
def test_an_early_take_waits_for_an_engine_that_is_not_back_yet(nodes):
    near, far, peer = nodes
    with Engine(near.socket, "p", blocks=BLOCKS) as p, Cache(far.socket, "d") as d:
        p.ask(f"[cache.fill(i, i) for i in {IDS}]")
        p.ask(f"offer = cache.node.offer('k', {IDS}, tokens={TOKENS}, token={TOKEN!r})")
        p.signal(signal.SIGSTOP)
        near.kill()
        near.start()
        back(d.node)
        take = d.node.take("k", IDS, peer=peer, token=TOKEN, tokens=TOKENS, timeout=60)
        with pytest.raises(kvpipe.Timeout):
            take.wait(3)  # longer than offer_wait: it would be unknown otherwise
        p.signal(signal.SIGCONT)
        take.wait(60)
        assert all(d.holds(i, i) for i in IDS)
        p.ask("offer.wait(60)")


def test_ranks_come_back_together(folder):
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rr{n}", f"rr{n}", folder / "ca")
    try:
        with kvpipe.connect(daemon.socket, engine_id="p", role="scheduler", instance="1") as ps, \
                kvpipe.connect(daemon.socket, engine_id="d", role="scheduler", instance="1") as ds, \
                Cache(daemon.socket, "p", tp=2, rank=0, instance="1") as p0, Engine(daemon.socket, "p", tp=2, rank=1, instance="1") as p1, \
                Cache(daemon.socket, "d", tp=2, rank=0, instance="1") as d0, Cache(daemon.socket, "d", tp=2, rank=1, instance="1") as d1:
            [p0.fill(i, i) for i in IDS]
            p1.ask(f"[cache.fill(i, i + 1) for i in {IDS}]")
            offer = ps.offer("k", IDS, tokens=TOKENS, token=TOKEN, tag=7)
            p1.signal(signal.SIGSTOP)  # one rank is late
            daemon.kill()
            daemon.start()
            for node in (ps, ds, p0.node, d0.node, d1.node):
                back(node)
            take = ds.take("k", IDS, token=TOKEN, tokens=TOKENS, tag=9, timeout=60)
            with pytest.raises(kvpipe.Timeout):
                take.wait(0.5)
            p1.signal(signal.SIGCONT)
            take.wait(60)
            offer.wait(60)
            assert all(d0.holds(i, i) and d1.holds(i, i + 1) for i in IDS)
            for rank in (d0, d1):  # each hears of it once
                assert [(c.tag, c.status) for c in collect(rank.node, 1)] == [(9, kvpipe.Status.DONE)]
                assert rank.node.poll() == []
            # A granted one is told to the ranks by the daemon after.
            offer = ps.offer("m", [], tokens=0, token=TOKEN, sealed=False)
            offer.extend(IDS, tokens=TOKENS, after=1 << 16, layered=True, sealed=True)
            p0.node.progress(1 << 16 | 1)
            p1.ask("cache.node.progress(1 << 16 | 1)")
            take = ds.take("m", IDS, token=TOKEN, tokens=TOKENS, tag=11, timeout=60, layered=True)
            take.wait_layer(0, 60)
            daemon.kill()
            with pytest.raises(kvpipe.Restarted):
                take.wait(60)
            daemon.start()
            for rank in (d0, d1):
                done = collect(rank.node, 1)
                assert [(c.tag, c.status, c.reason) for c in done] == [(11, kvpipe.Status.FAILED, kvpipe.Reason.RESTARTED)]
                assert rank.node.poll() == []
    finally:
        daemon.stop()


def test_what_is_unregistered_is_never_written_to_again_nor_what_comes_after_it(folder):
    """Each daemon calls a session's first region alike: neither a layout nor a view of one that is gone is of the next one."""
    daemon = Daemon(folder / "names", "names", folder / "ca")
    try:
        with Cache(daemon.socket, "p") as p, Cache(daemon.socket, "d") as d, \
                kvpipe.connect(daemon.socket, engine_id="d", role="scheduler") as scheduler:
            [p.fill(i, 1 + i) for i in IDS]
            offer = p.node.offer("k", IDS, tokens=TOKENS, token=TOKEN)
            names = [d.region.id]
            d.region.close()
            for _ in range(2):
                restart([daemon], [p.node, d.node, scheduler], "kill")
                region = d.node.alloc(d.layers * d.blocks * d.size)
                names.append(region.id)
                with pytest.raises(kvpipe.Error):
                    scheduler.take("k", IDS, token=TOKEN, tokens=TOKENS, timeout=2).wait(60)
                assert not any(memoryview(region))
            assert len({*names}) == 3 and offer.withdraw()
            with pytest.raises(kvpipe.Invalid, match="has another one already"):
                d.node.set_layout([view(region)], {})
    finally:
        daemon.stop()


@pytest.mark.parametrize("when", ["before", "away"])
def test_an_offer_of_a_replaced_rank_ends(folder, when):
    """A scheduler's offer is about the memory of the worker that was there, and never about that of the next one."""
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rx{n}", f"rx{n}", folder / "ca")
    try:
        with kvpipe.connect(daemon.socket, engine_id="p", role="scheduler", instance="1") as ps, Cache(daemon.socket, "d") as d:
            first = Engine(daemon.socket, "p", instance="1")
            first.ask(f"[cache.fill(i, i) for i in {IDS}]")
            offer = ps.offer("k", IDS, tokens=TOKENS, token=TOKEN, consumers=2)
            d.node.take("k", IDS, token=TOKEN, tokens=TOKENS, timeout=60).wait(60)  # it is there, also for who is killed now
            if when == "before":
                first.close()
                with Cache(daemon.socket, "p", instance="1") as p:
                    restart([daemon], [ps, d.node, p.node], "kill")
                    ended(ps, offer, d, p)
            else:
                daemon.kill()
                first.close()
                daemon.start()
                back(ps)
                back(d.node)
                with Cache(daemon.socket, "p", instance="1") as p:
                    ended(ps, offer, d, p)
    finally:
        daemon.stop()


def ended(ps, offer, d, p):
    with pytest.raises(kvpipe.Restarted, match="another session of one of its ranks"):
        offer.wait(60)
    assert offer.released
    with pytest.raises(kvpipe.Timeout):
        d.node.take("k", IDS, token=TOKEN, tokens=TOKENS, timeout=0.5).wait(60)
    [p.fill(i, i + 1) for i in IDS]
    offer = ps.offer("k", IDS, tokens=TOKENS, token=TOKEN)  # of what the rank has that is here
    d.node.take("k", BACKWARDS, token=TOKEN, tokens=TOKENS, timeout=60).wait(60)
    offer.wait(60)
    assert all(d.holds(BLOCKS - 1 - i, i + 1) for i in IDS)


def test_an_offer_survives_daemons_that_are_killed_as_soon_as_they_are_ready(folder):
    """Wherever they leave a session that is on its way back: it is nobody else."""
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rk{n}", f"rk{n}", folder / "ca")
    try:
        with kvpipe.connect(daemon.socket, engine_id="p", role="scheduler", instance="1") as ps, \
                Cache(daemon.socket, "p", instance="1") as p, Cache(daemon.socket, "d") as d:
            more = [p.node.alloc(4096) for _ in range(50)]  # it takes a while to bring all of this
            [p.fill(i, i) for i in IDS]
            offer = ps.offer("k", IDS, tokens=TOKENS, token=TOKEN)
            for _ in range(4):
                restart([daemon], [], "kill")
            restart([daemon], [ps, p.node, d.node], "kill")
            d.node.take("k", IDS, token=TOKEN, tokens=TOKENS, timeout=60).wait(60)
            assert all(d.holds(i, i) for i in IDS)
            offer.wait(60)
            [region.close() for region in more]
    finally:
        daemon.stop()


def test_a_rank_that_died_before_is_missing_after(folder):
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rm{n}", f"rm{n}", folder / "ca")
    try:
        with kvpipe.connect(daemon.socket, engine_id="d", role="scheduler", instance="1") as ds, \
                Cache(daemon.socket, "p") as p, Cache(daemon.socket, "d", tp=2, rank=0, instance="1") as d0:
            d1 = Engine(daemon.socket, "d", tp=2, rank=1, instance="1")
            p.node.offer("k", IDS, tokens=TOKENS, token=TOKEN)
            d1.close()
            for _ in range(3):
                with pytest.raises(kvpipe.Unavailable, match='rank 1 of engine "d"'):
                    left(ds)
                restart([daemon], [ds, p.node, d0.node], "kill")
    finally:
        daemon.stop()


def left(ds):
    """A take of a scheduler, asked for until the daemon knows that a rank has died."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(kvpipe.Timeout):
            ds.take("none", IDS, token=TOKEN, tokens=TOKENS, timeout=0.2).wait(60)


def test_where_other_nodes_find_this_one_is_what_the_next_daemon_says(folder):
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rw{n}", f"rw{n}", folder / "ca")
    with kvpipe.connect(daemon.socket, engine_id="e") as node:
        assert (node.name, node.advertise) == (daemon.node, daemon.ask("status")["advertise"])
        name, there = f"rw{n}-renamed", own_address()
        daemon.command[daemon.command.index(daemon.node)] = name
        daemon.command[daemon.command.index("--listen") + 1] = there
        restart([daemon], [node], "stop")
        assert (node.name, node.advertise) == (name, there)
    assert (node.name, node.advertise) == (name, there)
    daemon.stop()


def test_a_daemon_that_never_comes_back(folder):
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rn{n}", f"rn{n}", folder / "ca")
    with Cache(daemon.socket, "e") as c:
        offer = c.node.offer("k", [1], tokens=BLOCK_SIZE, token=TOKEN, sealed=False)
        take = c.node.take("m", [2], token=TOKEN, tokens=BLOCK_SIZE, timeout=3)  # long enough for the daemon to die first
        daemon.kill()
        away(c.node)
        began = time.monotonic()
        with pytest.raises(kvpipe.Timeout, match="while the daemon was away"):
            take.wait(60)
        with pytest.raises(kvpipe.Timeout, match="while the daemon was away"):
            c.node.take("n", [3], token=TOKEN, tokens=BLOCK_SIZE, timeout=0.2).wait(60)
        assert time.monotonic() - began < 3.2 + LATE
        assert take.released and take.cancel(60)
        assert offer.withdraw(60) and offer.released
        began = time.monotonic()
    assert time.monotonic() - began < LATE  # closing waits for nobody


def test_a_daemon_that_stands_still(folder):
    n = len(list(folder.iterdir()))
    daemon = Daemon(folder / f"rs{n}", f"rs{n}", folder / "ca")
    try:
        with Cache(daemon.socket, "e") as c:
            daemon.freeze()
            take = c.node.take("k", [2], token=TOKEN, tokens=BLOCK_SIZE, timeout=3)
            with pytest.raises(kvpipe.Timeout, match="does not answer"):
                take.wait(60)
            assert not take.released
            daemon.process.send_signal(signal.SIGCONT)
            take.wait_released(60)
            until(lambda: any("stood still" in line for line in list(daemon.log)), "it has said why it was silent")
            # One that is killed while it stands still touches nothing any more, either.
            daemon.freeze()
            take = c.node.take("m", [2], token=TOKEN, tokens=BLOCK_SIZE, timeout=0.3)
            with pytest.raises(kvpipe.Timeout):
                take.wait(60)
            daemon.kill()
            take.wait_released(60)
            daemon.start()
            back(c.node)
    finally:
        daemon.stop()


def test_what_waits_for_an_answer_says_whether_there_is_a_daemon(folder):
    """Unavailable while it is away, Timeout while it stands still. Of an extension nobody knows more than that no answer came. A region that was
    to go while there is no daemon is what it was."""
    n = len(list(folder.iterdir()))
    away_one, still_one = [Daemon(folder / f"ra{n}{how}", f"ra{n}{how}", folder / "ca") for how in ("away", "still")]
    memory = os.memfd_create("whole", os.MFD_ALLOW_SEALING)
    os.posix_fallocate(memory, 0, 4096)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    calls, regions = [], {}
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, memory)
        for daemon, error in ((away_one, kvpipe.Unavailable), (still_one, kvpipe.Timeout)):
            node, other = [stack.enter_context(kvpipe.connect(daemon.socket, engine_id=f"e{i}")) for i in range(2)]
            bare, unused = node.alloc(BLOCKS << 16), other.alloc(4096)
            cache = stack.enter_context(Cache(daemon.socket, "offers"))
            offer = cache.node.offer("k", [1], tokens=BLOCK_SIZE, sealed=False, lease=600)
            with pytest.raises(kvpipe.Denied):  # which says that the daemon has the offer
                cache.node.take("k", [2], token=TOKEN, tokens=BLOCK_SIZE).wait()
            regions[daemon] = [unused, cache.region]
            calls += [
                (error, partial(node.alloc, 4096)),
                (error, partial(node.register_fd, memory, 4096)),
                (error, partial(node.set_layout, [view(bare, blocks=2)], {"model": "m"})),
                (error, partial(node.pipe, "p", "send")),
                (error, partial(node.lookup_buffer, "b")),
                (error, partial(unused.close, 1)),
                (error, partial(cache.region.invalidate, 1)),
                (kvpipe.Timeout, partial(offer.extend, [3], 2 * BLOCK_SIZE, timeout=1)),
            ]
        away_one.kill()
        still_one.freeze()
        try:
            with ThreadPoolExecutor(len(calls)) as pool:
                for error, ended in [(error, pool.submit(call)) for error, call in calls]:
                    with pytest.raises(error):
                        ended.result(60)
            assert all(region.registered and region.valid for region in regions[away_one])
        finally:
            still_one.process.send_signal(signal.SIGCONT)
    still_one.stop()
