"""vLLM's DataTransport over kvpipe: two nodes that write blocks to each other, by polling alone."""

import array
import json
import mmap
import random
import signal
import threading
import time
import unittest.mock

import pytest
from engines import LATE, idle
from vllm.v1.kv_offload.tiering.p2p.data.base import DataTransport, PollResult

import kvpipe
from kvpipe.vllm.tiering import KVPipeTransport

BLOCKS, SIZE = 64, 8192
told_of_faults = pytest.mark.skipif(not hasattr(PollResult, "peer_fault"), reason="this vLLM does not ask which peers are lost: 0.33 does")


class Side:
    """A transport, its memory, and what it said is over."""

    def __init__(self, socket, blocks=BLOCKS, size=SIZE, fields=None, **more):
        self.memory = mmap.mmap(-1, blocks * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self.memory).cast("B", (blocks, size))
        self.transport = KVPipeTransport(self._view, fields, socket=socket, **more)
        self.size, self.done, self.failed = size, [], []

    def meets(self, other, name):
        self.meeting(other, name).result()

    def meeting(self, other, name):
        t = other.transport
        return self.transport.add_remote_peer_async(name, t.get_agent_metadata(), t.base_addr, t.num_blocks, t.block_len)

    def fill(self, seed):
        self.memory[:] = random.Random(seed).randbytes(len(self.memory))

    def block(self, i):
        return self.memory[i * self.size:(i + 1) * self.size]

    def forget(self):
        """Adopted memory is the daemon's file until it is unmapped."""
        self.transport = None
        self._view.release()
        self.memory.close()

    def poll(self, peer=None):
        result = self.transport.poll(peer)
        self.done += result.done
        self.failed += result.failed


def until(condition, *sides):
    """Polls, as sessions do in every step of the engine."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, [(side.done, side.failed) for side in sides]
        for side in sides:
            side.poll()


def taking(side, name, before=lambda: None):
    """What the side takes for the peer, from when it has heard of it; before: called just before that."""
    node, peer = side.transport._node, side.transport._peers[name]
    take = node.take
    node.take = lambda *about, **options: before() or take(*about, **options)
    end = time.monotonic() + 30
    while not peer._takes and time.monotonic() < end:
        peer.hear()
    del node.take
    return list(peer._takes.values())


@pytest.fixture
def pair(sides):
    a, b = sides(), sides(True)
    a.meets(b, "b"), b.meets(a, "a")
    return a, b


@pytest.fixture
def old(monkeypatch):
    """Peers are no longer young as soon as they are there."""
    monkeypatch.setattr("kvpipe.vllm.tierpeer._YOUNG", 0)


@pytest.fixture(scope="module")
def settled(near, far):
    """Daemons hold nothing for anybody afterwards. What a test left half done they keep for some seconds, beside the next test."""
    yield
    for daemon in (near, far):
        idle(daemon)


@pytest.fixture
def sides(near, far, settled):
    made = []

    def make(far_away=False, **more):
        made.append(Side((far if far_away else near).socket, **more))
        return made[-1]

    yield make
    for side in made:
        side.transport.close()
        side.transport.close()
        side.forget()


def test_it_is_what_vllm_asks_for(sides):
    transport = sides().transport
    assert isinstance(transport, DataTransport)
    assert (transport.num_blocks, transport.block_len, transport.config_fingerprint) == (BLOCKS, SIZE, "")


def test_blocks_move_both_ways_at_once(pair):
    a, b = pair
    a.fill(1), b.fill(2)
    ours, theirs = [a.block(i) for i in range(BLOCKS)], [b.block(i) for i in range(BLOCKS)]
    there = a.transport.write_blocks("b", [0, 3, 9], [5, 7, 63])
    back = b.transport.write_blocks("a", [0, 1], [20, 21])
    until(lambda: a.done and b.done, a, b)
    assert (a.done, b.done, a.failed, b.failed) == ([there], [back], [], [])
    for i, want in ((5, ours[0]), (7, ours[3]), (63, ours[9])):
        theirs[i] = want
    ours[20], ours[21] = theirs[0], theirs[1]
    assert [b.block(i) for i in range(BLOCKS)] == theirs and [a.block(i) for i in range(BLOCKS)] == ours


def test_many_writes_each_end_once(pair):
    a, b = pair
    a.fill(3)
    order = random.Random(4).sample(range(BLOCKS), BLOCKS)
    numbers = [a.transport.write_blocks("b", [i], [order[i]]) for i in range(BLOCKS)]
    assert len(set(numbers)) == BLOCKS and all(type(n) is int for n in numbers)
    until(lambda: len(a.done) == BLOCKS, a, b)
    a.poll()
    assert sorted(a.done) == sorted(numbers) and not a.failed
    assert all(b.block(order[i]) == a.block(i) for i in range(BLOCKS))


def test_ends_that_nobody_asks_after_are_collected(pair, near, monkeypatch):
    """Else they fill the session, which then refuses everything."""
    (a, b), collected = pair, []
    poll = a.transport._node.poll
    monkeypatch.setattr(a.transport._node, "poll", lambda: collected.extend(poll()))
    near.freeze()  # an end that is there when its write is cancelled would be collected by that
    try:
        numbers = [a.transport.write_blocks("b", [1], [1]) for _ in range(20)]
        a.transport.cancel(numbers)
    finally:
        near.process.send_signal(signal.SIGCONT)
    until(lambda: len(collected) >= len(numbers), a, b)


def test_a_poll_for_one_peer_leaves_the_others_alone(sides):
    a, b, c = sides(), sides(True), sides(True)
    a.meets(b, "b"), a.meets(c, "c"), b.meets(a, "a"), c.meets(a, "a")
    first, second = a.transport.write_blocks("b", [1], [1]), a.transport.write_blocks("c", [2], [2])
    seen = []
    until(lambda: seen.extend(a.transport.poll("b").done) or seen, b, c)
    assert seen == [first]
    until(lambda: seen.extend(a.transport.poll("c").done) or len(seen) == 2, b, c)
    assert seen == [first, second]


def test_what_cannot_be_submitted_is_none(pair):
    a, _ = pair
    for peer, local, remote in [("nobody", [1], [1]), ("b", [1, 2], [1]), ("b", [], []), ("b", [1], [BLOCKS]), ("b", [1], [-1]),
                                ("b", [BLOCKS], [1])]:
        assert a.transport.write_blocks(peer, local, remote) is None


def test_cancel_at_once_forgets(pair):
    a, b = pair
    before = bytes(b.memory)
    number = a.transport.write_blocks("b", [1], [1])
    assert a.transport.cancel([number, 99]) == []
    other = a.transport.write_blocks("b", [2], [2])
    until(lambda: a.done, a, b)
    assert a.done == [other] and not a.failed and b.block(1) == before[SIZE:2 * SIZE]


def test_a_refusal_of_what_is_forgotten_is_forgotten_too(pair, monkeypatch):
    a, b = pair
    theirs, told = b.transport._peers["a"], []
    tell = theirs.tell
    monkeypatch.setattr(theirs, "tell", lambda *words: tell(*words) and not told.append(words))
    number = a.transport.write_blocks("b", [1], [1])
    a.transport.cancel([number])
    until(lambda: told, a, b)
    b.transport.write_blocks("a", [2], [2])  # which comes behind it
    until(lambda: b.done, a, b)
    assert told[0] == (-number, []) and not a.transport._peers["b"].refused


def test_cancel_and_wait_ends_when_no_byte_can_land(pair):
    """The peer has not even heard of it: it has to, before its blocks are its own again."""
    a, b = pair
    a.fill(5)
    number = a.transport.write_blocks("b", [1], [1])
    assert a.transport.cancel([number], mode="wait") == [number]
    a.poll()
    assert not a.failed
    until(lambda: a.failed, a, b)
    assert a.failed == [number] and not a.done and b.block(1) == bytes(SIZE)
    assert a.transport.cancel([number], mode="wait") == []


def test_cancel_of_what_is_done_is_nothing_to_wait_for(pair):
    a, b = pair
    a.fill(6)
    number = a.transport.write_blocks("b", [1], [1])
    until(lambda: a.transport._writes._all[number].operation.released, b)  # and not only the bytes there
    assert b.block(1) == a.block(1)
    assert a.transport.cancel([number], mode="wait") == []
    assert a.transport.poll()[:2] == ([], [])


def test_blocks_that_are_being_written_are_refused_to_a_second_write(pair):
    """The peer ends up with one of the two, whole."""
    a, b = pair
    a.fill(7)
    numbers = [a.transport.write_blocks("b", [i], [9]) for i in (1, 2)]
    until(lambda: len(a.done) + len(a.failed) == 2, a, b)
    assert sorted(a.done + a.failed) == sorted(numbers) and a.done
    assert b.block(9) in [a.block(1 if n == numbers[0] else 2) for n in a.done]


def test_a_peer_that_closes_fails_what_it_did_not_take(old, pair):
    a, b = pair
    first = a.transport.write_blocks("b", [1], [1])
    until(lambda: a.done, a, b)
    number = a.transport.write_blocks("b", [1], [1])
    b.transport.close()
    until(lambda: a.failed, a)
    assert (a.done, a.failed) == ([first], [number])
    assert a.transport.write_blocks("b", [1], [1]) is None


@pytest.mark.parametrize("item", [None, b"", b"7 bytes", array.array("q", [0, 1])],
                         ids=["None", "empty", "no whole number", "a write whose refusal would be one, too"])
def test_a_peer_that_says_nonsense_is_gone(sides, item):
    a, b = sides(timeout=0.5), sides(True)
    a.meets(b, "b"), b.meets(a, "a")
    number = a.transport.write_blocks("b", [1], [1])
    b.transport._peers["a"]._tell.send_tensor(item)
    until(lambda: a.transport.write_blocks("b", [2], [2]) is None, a)
    until(lambda: number in a.done + a.failed, a)
    assert b.transport.write_blocks("a", [2], [2])  # it hears well


def test_so_is_one_that_says_again_what_is_under_way(pair):
    """Only one of the two would be waited for when the peer is removed."""
    a, b = pair
    peer = b.transport._peers["a"]
    peer._takes[7] = take = b.transport._node.take("tier/nowhere", [1], tokens=1, token=peer.token, timeout=60)
    a.transport._peers["b"]._tell.send_tensor(array.array("q", [7, 2]))
    until(lambda: peer.fault, b)
    assert list(peer._takes.values()) == [take] and not take.released
    b.transport.remove_remote_peer("a")
    assert take.released


def test_a_peer_that_never_polls(sides):
    """The write's time is over; the peer's own take would be over by then too."""
    a, b = sides(timeout=0.2), sides(True)
    a.meets(b, "b"), b.meets(a, "a")
    number = a.transport.write_blocks("b", [1], [1])
    until(lambda: a.failed, a)
    assert a.failed == [number]


@told_of_faults
def test_a_peer_that_is_lost_is_said_to_be_until_it_is_removed(old, pair, sides):
    """vLLM then ends its session with it, and begins another. Nothing else makes it do so."""
    (a, b), c = pair, sides(True)
    a.meets(c, "c"), c.meets(a, "a")
    a.transport.write_blocks("b", [1], [1])
    until(lambda: a.done, a, b)
    assert a.transport.poll("b").peer_fault is None
    b.transport.close()
    until(lambda: a.transport.poll("b").peer_fault)
    assert "was closed by its sender" in a.transport.poll("b").peer_fault
    assert a.transport.poll().peer_fault is a.transport.poll("c").peer_fault is a.transport.poll("nobody").peer_fault is None
    a.transport.remove_remote_peer("b")
    assert a.transport.poll("b").peer_fault is None


@told_of_faults
def test_a_peer_that_cannot_be_told_anything_is_lost(pair):
    a, _ = pair
    a.transport._peers["b"]._tell.close()
    assert a.transport.write_blocks("b", [1], [1]) is None
    assert "is closed" in a.transport.poll("b").peer_fault


def test_all_peers_are_lost_with_the_session(sides):
    a, b = pair = sides(timeout=0.5), sides(True)
    a.meets(b, "b"), b.meets(a, "a")
    number = a.transport.write_blocks("b", [1], [1])
    assert taking(b, "a")
    for side in pair:
        side.transport._node.close()
    until(lambda: a.failed, a, b)
    assert a.failed == [number] and not a.done
    assert a.transport.write_blocks("b", [1], [1]) is None
    if hasattr(PollResult, "peer_fault"):
        assert a.transport.poll("b").peer_fault and b.transport.poll("a").peer_fault


def test_nothing_lands_once_a_peer_is_removed(pair, far):
    """vLLM has failed the load by then, and uses its blocks for something else."""
    a, b = pair
    assert a.transport.write_blocks("b", [1], [1])
    goes_on = threading.Timer(0.5, far.process.send_signal, [signal.SIGCONT])
    try:
        (take,) = taking(b, "a", far.freeze)
        goes_on.start()
        b.transport.remove_remote_peer("a")
        assert take.released
    finally:
        goes_on.cancel()
        far.process.send_signal(signal.SIGCONT)


def test_a_write_to_a_peer_that_is_lost_has_not_failed_while_it_may_land(pair, far):
    """vLLM would tell the peer at once that its blocks are its own again."""
    a, b = pair
    b.transport._peers["a"]._tell.send_tensor(None)
    a.transport.write_blocks("b", [1], [1])
    (take,) = taking(b, "a", far.freeze)
    try:
        until(lambda: a.transport._peers["b"].fault, a)
        until(lambda: a.transport._writes._all[1].operation.released, a)
        for _ in range(10):
            a.poll()
        assert (a.done, a.failed) == ([], [])
    finally:
        far.process.send_signal(signal.SIGCONT)
    take.wait_released(30)


@pytest.mark.parametrize("first", ["writer", "reader", "reader, too late"])
def test_a_peer_whose_words_lie_unread_comes_again_at_once(pair, monkeypatch, first):
    """Also if they were given up before they were read: nobody wants them any more."""
    monkeypatch.setattr("kvpipe.vllm.tierpeer._YOUNG", 600)  # on a busy machine the opener may take long
    a, b = pair
    old = [a.transport.write_blocks("b", [i], [i]) for i in range(3)]
    a.transport.remove_remote_peer("b"), b.transport.remove_remote_peer("a")
    if first != "writer":
        b.meets(a, "a")
        if first == "reader, too late":
            lost = kvpipe.PeerGone('"tier": its sender is gone, and what it had put is lost: 3 items not received within 500ms (linger): closed by its owner')
            monkeypatch.setattr(b.transport._peers["a"]._hears, "recv_tensor", unittest.mock.Mock(side_effect=lost))
        end = time.monotonic() + 0.3
        until(lambda: time.monotonic() > end, b)  # it hears what the writer has said before
    a.meets(b, "b")
    if first == "writer":
        b.meets(a, "a")
    a.fill(9)
    number = a.transport.write_blocks("b", [4], [5])
    until(lambda: a.done, a, b)
    assert a.done == [number] not in old and not a.failed
    assert [i for i in range(BLOCKS) if b.block(i) != bytes(SIZE)] == [5] and b.block(5) == a.block(4)


def test_nothing_waits_for_a_daemon_that_stands_still(pair, near, sides):
    """Its queue is full after 1,024 writes; each call would wait for room."""
    (a, b), c = pair, sides(True)
    near.freeze()
    try:
        began = time.monotonic()
        numbers = [a.transport.write_blocks("b", [i % BLOCKS], [i % BLOCKS]) for i in range(1100)]
        made = [number for number in numbers if number is not None]
        assert 0 < len(made) < len(numbers)
        for _ in range(20):
            a.poll()
        assert a.transport.cancel(made[:10], mode="wait") == made[:10]
        assert a.transport.cancel(made[:10]) == []
        a.transport.remove_remote_peer("b")
        meeting = a.meeting(c, "c")
        assert time.monotonic() - began < 2.5 + LATE and not meeting.done()
    finally:
        near.process.send_signal(signal.SIGCONT)
    c.meets(a, "a"), meeting.result()
    until(lambda: not a.transport._writes._all, a, b)  # also of what could not be withdrawn then
    until(lambda: a.transport.write_blocks("c", [1], [1]), a, c)
    until(lambda: a.done, a, c)
    assert b.memory[:] == bytes(len(b.memory))


def test_a_peer_comes_again(pair, sides):
    a, b = pair
    number = a.transport.write_blocks("b", [1], [1])
    a.transport.remove_remote_peer("b")
    a.transport.remove_remote_peer("b")
    assert a.transport.write_blocks("b", [1], [1]) is None and a.transport.poll()[:2] == ([], [])
    again = sides(True)
    a.meets(again, "b"), again.meets(a, "a")
    a.fill(8)
    second = a.transport.write_blocks("b", [4], [4])
    until(lambda: a.done, a, again)
    assert a.done == [second] != [number] and again.block(4) == a.block(4)


def test_peers_that_do_not_fit_are_refused(sides):
    """By ValueError, on which vLLM drops the connection."""
    a, b = sides(fields={"model": "x", "dtype": "bf16"}), sides(True, fields={"model": "y", "dtype": "bf16"})
    assert len(a.transport.config_fingerprint) == 16 != b.transport.config_fingerprint
    with pytest.raises(ValueError, match="has fingerprint .*, here it is"):
        a.meets(b, "b")
    other = sides(True, fields={"model": "x", "dtype": "bf16"}, size=4096)
    with pytest.raises(ValueError, match="blocks of 4096 bytes, here they have 8192"):
        a.meets(other, "b")
    any_peer = sides(True)
    a.meets(any_peer, "any"), any_peer.meets(a, "a")
    good = json.loads(b.transport.get_agent_metadata())
    for metadata in (b"", b"nixl", b"[]", b"{}", json.dumps({**good, "v": 2}).encode(), json.dumps({**good, "secret": "ab"}).encode(),
                     json.dumps({**good, "node": None}).encode()):
        with pytest.raises(ValueError, match="not of a KVPipeTransport of this release"):
            a.transport.add_remote_peer("b", metadata, 0, BLOCKS, SIZE)


def test_without_the_secret_nothing_is_taken(pair, far):
    """What the pipes carry, and the blocks, are for those who were given the metadata."""
    a, b = pair
    number = a.transport.write_blocks("b", [1], [1])
    mine, theirs = (json.loads(side.transport.get_agent_metadata()) for side in (a, b))
    with kvpipe.connect(far.socket, engine_id="thief") as thief:
        with pytest.raises(kvpipe.Error), thief.pipe(f"tier/{mine['id']}/{theirs['id']}", "recv", peer=mine["address"]) as pipe:
            pipe.recv_tensor(timeout=5)
    until(lambda: a.done, a, b)
    assert a.done == [number]


def test_memory_of_a_region_is_used_as_it_is(near, sides):
    with kvpipe.connect(near.socket, engine_id="memory") as node:
        region = node.alloc(BLOCKS * SIZE)
        with pytest.raises(kvpipe.Error):  # another session's
            KVPipeTransport(memoryview(region).cast("B", (BLOCKS, SIZE)), socket=near.socket)
