"""Every session concerned hears of an operation's end once, and after MORE exactly once that it was released; nothing adds up."""

import contextlib
import os
import select
import signal
from collections import defaultdict

import kvpipe
import pytest
from caches import Cache
from daemons import Daemon
from engines import idle, until

LAYERS, BLOCKS = 16, 256
IDS = list(range(BLOCKS))
TOKEN = b"0123456789abcdef"
ENDS = (kvpipe.Status.DONE, kvpipe.Status.FAILED, kvpipe.Status.CANCELLED)


@pytest.fixture(scope="module")
def hasty(folder):
    """Two daemons that hardly wait for a fence before they report an end with MORE."""
    config = '[advanced]\nfence_grace = "1ms"\n'
    near = Daemon(folder / "hasty-p", "hasty-p", folder / "ca", config=config)
    far = Daemon(folder / "hasty-c", "hasty-c", folder / "ca", [f"hasty-p={near.ask('status')['advertise']}"], config=config)
    yield near, far
    far.stop()
    near.stop()


class Ear:
    """All completions of a session, by operation."""

    def __init__(self, node):
        self.node, self.heard = node, defaultdict(list)

    def until(self, op_ids):
        """Listens until each of these has ended and was released."""
        with select.epoll() as epoll:
            epoll.register(self.node.fileno(), select.EPOLLIN)
            while True:
                for c in self.node.poll():
                    self.heard[c.op_id].append(c)
                if all(self.heard[i] and self.heard[i][-1].released for i in op_ids):
                    return
                assert epoll.poll(60), "nothing within 60 s"

    def check(self, op_ids):
        """Returns how many ended with MORE."""
        assert self.node.poll() == [] and set(self.heard) == set(op_ids)
        late = 0
        for said in self.heard.values():
            assert said[0].status in ENDS
            later = [c.status for c in said[1:] if c.status != kvpipe.Status.QUARANTINED]
            assert later == ([] if said[0].released else [kvpipe.Status.RELEASED]), said
            late += len(later)
        return late


@pytest.mark.parametrize("where", ["local", "tcp"])
def test_once_in_each_session(hasty, where):
    """A scheduler and two workers, whose takes are cancelled or lose their offer in mid-transfer."""
    near, far = hasty
    there = near if where == "local" else far
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(Cache(near.socket, "p", layers=LAYERS, blocks=BLOCKS))
        ranks = [stack.enter_context(Cache(there.socket, "c", layers=LAYERS, blocks=BLOCKS, tp=2, rank=i)) for i in range(2)]
        scheduler = stack.enter_context(kvpipe.connect(there.socket, engine_id="c", role="scheduler"))
        takes, offers = [], []
        for n in range(60):
            offers.append(producer.node.offer(f"k{n}", IDS, tokens=16 * BLOCKS))
            takes.append(scheduler.take(f"k{n}", IDS[::-1], peer=None if where == "local" else near.node,
                                        token=offers[-1].token, tokens=16 * BLOCKS, layered=True))
            takes[-1].wait_layer(n % 4, 60)
            if n % 3:
                takes[-1].cancel(60)
            offers[-1].withdraw(60)
            for op in offers[-1], takes[-1]:
                op.wait_released(60)
                with contextlib.suppress(kvpipe.Error):
                    op.wait(60)
        ids = {take.completion.op_id for take in takes}
        assert len(ids) == len(takes)
        late = 0
        for cache in ranks:
            ear = Ear(cache.node)
            ear.until(ids)
            late += ear.check(ids)
        print(f"{late} of {2 * len(takes)} ended with MORE")
        for daemon in {near, there}:
            assert [s["operations"] for s in daemon.ask("sessions")] == [0] * len(daemon.ask("sessions"))
    idle(near), idle(far)


@pytest.mark.parametrize("where", ["local", "tcp"])
def test_nothing_adds_up(near, far, where):
    """Rounds of all that can be called off, in the daemon's tables and in Python's."""
    there, peer = (near, None) if where == "local" else (far, "near")
    with Cache(near.socket, "p") as producer, Cache(there.socket, "c") as consumer:
        p, c = producer.node, consumer.node
        for n in range(3000):
            key, blocks = f"{where}{n}", [n % 32]
            if n % 4 == 0:
                assert p.offer(key, blocks, tokens=16).withdraw(60)
                continue
            offer = p.offer(key, blocks, tokens=16, token=TOKEN)
            if n % 4 == 1:
                c.watch(key, peer, TOKEN).wait(60)
                c.drop(key, peer, TOKEN).wait(60)
            else:
                take = c.take(key, blocks, peer=peer, token=TOKEN, tokens=16)
                if n % 4 == 2:
                    take.cancel(60)
                else:
                    offer.withdraw(60)
                    with contextlib.suppress(kvpipe.Expired, kvpipe.PeerGone):
                        take.wait(60)
                take.wait_released(60)
            offer.withdraw(60)
            offer.wait_released(60)
        for node in p, c:
            assert node.poll() == [] and len(node._session.dropped) <= 4
        for daemon in {near, there}:
            assert all(s["operations"] == s["uncollected"] == 0 for s in daemon.ask("sessions"))
    idle(near), idle(far)


def test_nothing_is_remembered_of_one_that_was_only_waited_for_until_released(hasty):
    """It ends with MORE, which nobody asks it about, and its RELEASED is what wait_released() heard."""
    daemon, _ = hasty
    with Cache(daemon.socket, "c") as cache:
        node, session = cache.node, cache.node._session
        ear = select.poll()
        ear.register(node.fileno(), select.POLLIN)
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            take = node.take("never", [1], token=TOKEN, tokens=16, timeout=0.05)
            assert ear.poll(60_000)  # the library ends it
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        take.wait_released(60)
        number = take._id
        del take
        (end,) = node.poll()
        assert end.status == kvpipe.Status.FAILED and end.op is None and not end.released
        with session as handle:
            assert session.lib.op_released(handle, number) == -kvpipe.Reason.NOT_FOUND


def test_released_that_comes_while_poll_looks_is_not_lost(hasty, monkeypatch):
    """Nobody holds the take. poll() has read its end when RELEASED comes, and finds that it is released."""
    daemon, _ = hasty
    with Cache(daemon.socket, "c") as cache:
        node, lib = cache.node, cache.node._session.lib
        ear = select.poll()
        ear.register(node.fileno(), select.POLLIN)
        daemon.freeze()

        def comes(handle, op, plain=lib.op_released):
            daemon.process.send_signal(signal.SIGCONT)
            until(lambda: plain(handle, op) == 1, "RELEASED")
            return 1

        try:
            node.take("never", [1], token=TOKEN, tokens=16, timeout=0.05)
            assert ear.poll(60_000)  # the library ends it
            monkeypatch.setattr(lib, "op_released", comes)
            ends = node.poll() + node.poll()
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert [end.status for end in ends] == [kvpipe.Status.FAILED, kvpipe.Status.RELEASED] and not ends[0].released


@pytest.mark.parametrize("given, past", [(1000, 1000), (None, 30)], ids=["of its own", "that it was given none"])
def test_memory_is_waited_for_half_a_minute_past_the_deadline(hasty, monkeypatch, given, past):
    """Or past now, if that is over."""
    daemon, _ = hasty
    with Cache(daemon.socket, "c") as cache:
        take, waits = cache.node.take("never", [1], token=TOKEN, tokens=16, timeout=given), []
        monkeypatch.setattr(kvpipe.Take, "_sliced", lambda self, what, timeout, *_: waits.append(timeout))
        take.wait_released()
        take._deadline = 0
        take.wait_released()
        monkeypatch.undo()
        assert past < waits[0] <= past + 30 and waits[1] == 30.0
        take.cancel()
