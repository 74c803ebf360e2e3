"""Who is slow slows nobody else: a pipe that is full, a receiver that does not receive or stands still, within a node and between two."""

import signal
import threading

import kvpipe
import numpy
import pytest
from caches import BLOCK_SIZE, Cache
from engines import LATE, Engine

PART = 300_000  # bytes; three of them are less than a pipe's capacity
ROUNDS = 20
IDS = list(range(8))


@pytest.fixture(params=["one node", "two nodes"])
def two(request, near, far):
    """Two engines with a cache each, the daemon of the second one, and how that names the node of the first."""
    there = near if request.param == "one node" else far
    with Cache(near.socket, "a") as a, Cache(there.socket, "b") as b:
        yield a, b, there, None if there is near else near.node


def part(i):
    return numpy.full(PART, i % 251, numpy.uint8)


def fill(tx):
    """Sends until there is no room, also not at the receiver, which fetches some ahead. Returns how many went."""
    for i in range(1000):
        try:
            tx.send_tensor(part(i), timeout=1)
        except kvpipe.Timeout as error:
            assert "no room for" in str(error)
            with pytest.raises(kvpipe.Timeout):  # nor will there be
                tx.send_tensor(part(i), timeout=0.1)
            return i
    raise AssertionError("300 MB went into a pipe of 1 MiB that nobody reads")


def others_go_on(a, b, peer, name):
    """Between the same engines: another pipe, hand-overs, a lookup buffer. Each call has a fraction of the time that the slow one waits."""
    with a.node.pipe(f"{name} other", "send", capacity=1 << 20) as tx, b.node.pipe(f"{name} other", "recv", peer=peer) as rx:
        for i in range(ROUNDS):
            tx.send_tensor(part(i), timeout=LATE)
            assert rx.recv_tensor(timeout=LATE, framework="numpy").tolist() == [i] * PART
    for i in range(ROUNDS):
        [a.fill(k, i + k) for k in IDS]
        offer = a.node.offer(f"{name} {i}", IDS, tokens=len(IDS) * BLOCK_SIZE)
        b.node.take(f"{name} {i}", IDS, peer=peer, token=offer.token, tokens=len(IDS) * BLOCK_SIZE, timeout=LATE).wait(LATE)
        assert all(b.holds(k, i + k) for k in IDS)
        offer.wait(LATE)
    with a.node.lookup_buffer(f"{name} shelf", capacity=1 << 20) as own, b.node.lookup_buffer(f"{name} shelf", peer=peer) as sel:
        for i in range(ROUNDS):
            own.insert(numpy.array([i, 1]), None, part(i), None, None, timeout=LATE)
            entry = sel.drop_select(numpy.array([i]), timeout=LATE, framework="numpy")
            assert entry[2].tolist() == [i] * PART
        own.put("k", part(7), timeout=LATE)
        assert sel.get("k", timeout=LATE, framework="numpy").tolist() == [7] * PART


def test_a_full_pipe_slows_nobody(two, name):
    a, b, _, peer = two
    with a.node.pipe(name, "send", capacity=1 << 20) as tx, b.node.pipe(name, "recv", peer=peer) as rx:
        tx.send_tensor(part(0))
        rx.recv_tensor()  # from now on it fetches ahead
        sent = fill(tx)
        waiting = threading.Thread(target=tx.send_tensor, args=(part(sent),), kwargs={"timeout": 60 * LATE})
        waiting.start()
        try:
            others_go_on(a, b, peer, name)
            assert waiting.is_alive()
        finally:
            got = [int(rx.recv_tensor(timeout=60, framework="numpy")[0]) for _ in range(sent + 1)]
            waiting.join(60)
        assert got == [i % 251 for i in range(sent + 1)] and not waiting.is_alive()


def test_a_receiver_that_stands_still_slows_nobody(two, name):
    """Its process is stopped, with what it has fetched ahead and a take under way."""
    a, b, there, peer = two
    with Engine(there.socket, "still") as still, a.node.pipe(name, "send", capacity=1 << 20) as tx, \
            a.node.lookup_buffer(f"{name} shelf of its own", capacity=1 << 20) as own:
        still.ask(f"rx = cache.node.pipe({name!r}, 'recv', peer={peer!r})")
        still.ask(f"query = cache.node.lookup_buffer({name + ' shelf of its own'!r}, peer={peer!r})")
        tx.send_tensor(part(0))
        assert still.ask("rx.recv_tensor(framework='raw').data.nbytes") == PART
        offer = a.node.offer(f"{name} of its own", IDS, tokens=len(IDS) * BLOCK_SIZE, sealed=False)
        still.ask(f"take = cache.node.take({name + ' of its own'!r}, {IDS}, peer={peer!r}, token={offer.token!r}, "
                  f"tokens={len(IDS) * BLOCK_SIZE}, timeout=600)")
        still.signal(signal.SIGSTOP)
        sent = fill(tx)
        own.insert(numpy.array([1]), None, part(1), None, None, timeout=LATE)
        others_go_on(a, b, peer, name)
        still.signal(signal.SIGCONT)
        assert still.ask(f"[rx.recv_tensor(framework='raw').data[0] for _ in range({sent})]") == [i % 251 for i in range(sent)]
        assert still.ask("query.drop_select(None, framework='raw')[2].data.nbytes") == PART
        offer.seal()
        still.ask("take.wait(60)")
        offer.wait(60)
