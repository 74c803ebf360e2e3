"""Bad input: a clear error at its caller, of the right class, that names field, value and limit and says what to do; on time,
within a node and between two; and nothing stays behind."""

import contextlib
import os
import socket
import struct
import threading

import kvpipe
import pytest
from caches import FINGERPRINT, Cache
from daemons import Daemon
from engines import heard, idle

TOKEN = b"0123456789abcdef"


class Ends:
    """A producer and a consumer with eight blocks each."""

    def __init__(self, producer, consumer, peer):
        self.producer, self.consumer, self.peer = producer, consumer, peer

    def offer(self, key, blocks=(1,), **more):
        """An offer that is there: the answer to seal() comes behind it."""
        offer = self.producer.node.offer(key, list(blocks), tokens=16 * len(blocks), token=TOKEN, sealed=False, **more)
        offer.seal()
        return offer

    def take(self, key, blocks=(1,), tokens=None, token=TOKEN, timeout=60, **more):
        more = {"peer": self.peer, **more}
        tokens = 16 * len(blocks) if tokens is None else tokens
        return self.consumer.node.take(key, list(blocks), tokens=tokens, token=token, timeout=timeout, **more)

    def refused(self, error, said, *args, timeout=60, **more):
        refused(error, said, lambda: self.take(*args, timeout=timeout, **more).wait(), within=timeout)


def refused(error, said, call, within=0.0):
    """Within: the caller's own deadline, if it is that which ends the call."""
    caught = heard(call, within, "passed and the daemon does not answer")
    assert isinstance(caught, error), repr(caught)
    text = str(caught)
    assert [word for word in said if word not in text] == [], text
    assert "0123456789abcdef" not in text  # tokens are shown to nobody
    return text


@pytest.fixture(params=["local", "tcp"])
def ends(request):
    near, far = request.getfixturevalue("near"), request.getfixturevalue("far")
    there = far if request.param == "tcp" else near
    with Cache(near.socket, "giver", blocks=8) as producer, Cache(there.socket, "taker", blocks=8) as consumer:
        yield Ends(producer, consumer, "near" if request.param == "tcp" else None)
    idle(near), idle(far)


def test_unknown_key(ends):
    # Both nodes look at the clock: whoever is first says what it knows.
    ends.refused(kvpipe.Timeout, ['"unheard-of"', " within ", 'node "near"', "check key and peer"], "unheard-of", timeout=1.5)


def test_layer_of_a_take_that_is_over(ends):
    """Its own deadline ends the wait as well, which has none."""
    takes = []

    def over():
        takes.append(ends.take("unheard-of", timeout=0.05, layered=True))
        takes[-1].wait_layer(0)

    text, take = refused(kvpipe.Timeout, ['"unheard-of"'], over), takes[-1]
    with pytest.raises(kvpipe.Timeout) as caught:
        take.wait_layer(0, timeout=60)
    assert caught.value.completion == take.completion and str(caught.value) == text
    with pytest.raises(kvpipe.Invalid, match="layer 77 is not among those") as caught:
        take.wait_layer(77)
    assert caught.value.completion is None


def test_expired(ends):
    refused(kvpipe.Expired, ['"short"', "lease of 50ms", "offer it again"],
            lambda: ends.producer.node.offer("short", [1], tokens=16, token=TOKEN, lease=0.05).wait())
    ends.refused(kvpipe.Expired, ['"short"', '"giver"', '"near"', "expired", "new request"], "short")


def test_withdrawn(ends):
    assert ends.offer("back").withdraw()
    ends.refused(kvpipe.Expired, ['"back"', '"giver"', '"near"', "was withdrawn", "new request"], "back")


def test_consumed(ends):
    offer = ends.offer("once")
    ends.take("once").wait()
    offer.wait()
    ends.refused(kvpipe.Expired, ['"once"', '"giver"', '"near"', "was consumed", "new request"], "once")


def test_wrong_token(ends):
    ends.offer("secret")
    other = b"fedcba9876543210"
    use = ['"secret"', "wrong token", "use the one that the offer was made with"]
    ends.refused(kvpipe.Denied, use, "secret", token=other)
    for layered in (True, False):
        take = ends.take("secret", token=other, layered=layered)
        refused(kvpipe.Denied, use, lambda: take.wait_layer(0), within=60)
        with pytest.raises(kvpipe.Denied) as caught:
            take.wait_layer(0)
        assert caught.value.completion == take.completion and take.completion.op is take
    node = ends.consumer.node
    refused(kvpipe.Denied, use, node.watch("secret", ends.peer, other).wait)
    refused(kvpipe.Denied, use, node.drop("secret", ends.peer, other).wait)


def test_wrong_content(ends):
    ends.offer("lora", content=b"\x01\x02")
    ends.refused(kvpipe.Incompatible, ["content digest", "0102", "0304"], "lora", content=b"\x03\x04")
    ends.refused(kvpipe.Incompatible, ["content digest", "0102", "none"], "lora")


@pytest.mark.parametrize(
    "change, said",
    [
        ({"model": "other"}, ['"model"', '"test"', '"other"']),
        ({"dtype": "fp8"}, ['"dtype"', '""', '"fp8"']),
        ({"mla": True}, ['"mla"', '"False"', '"True"']),
    ],
    ids=["differs", "more", "bool"],
)
def test_wrong_fingerprint(ends, near, far, change, said):
    ends.offer("model", consumers=2)
    there = near if ends.peer is None else far
    with Cache(there.socket, "odd", fingerprint={**FINGERPRINT, **change}) as odd:
        take = Ends(None, odd, ends.peer).take("model")
        refused(kvpipe.Incompatible, said + ["producer", "consumer"], take.wait)
        assert take.released and take.failed_blocks == [1]


@pytest.mark.parametrize(
    "error, said, blocks, tokens",
    [
        (kvpipe.Invalid, ["id 8", "position 1", "8 blocks"], [1, 8], 32),
        (kvpipe.Invalid, ["id 3", "positions 0 and 2", "once"], [3, 4, 3], 48),
        (kvpipe.Invalid, ["2 ids", "tokens 0 to 16", "need 1"], [1, 2], 16),
        (kvpipe.Invalid, ["1 ids", "tokens 0 to 17", "need 2"], [1], 17),
        (kvpipe.Invalid, ["1 ids", "tokens 10 to 20", "need 2"], [1], (10, 20)),
        (kvpipe.Invalid, ["list 1", "group 1", "no rank's layout"], [[1], [2]], 16),
    ],
    ids=["out of range", "twice", "too many", "too few", "straddling", "group"],
)
def test_block_lists(ends, error, said, blocks, tokens):
    ends.offer("blocks")
    ends.refused(error, said, "blocks", blocks, tokens)
    if not isinstance(tokens, tuple):
        refused(error, said, ends.producer.node.offer("other", blocks, tokens=tokens).wait)


def test_more_tokens_than_offered(ends):
    ends.offer("brief", [1, 2])
    take = ends.take("brief", [3, 4, 5])
    refused(kvpipe.NotFound, ['"brief"', "lacks", "block 5 of group 0", "ask for tokens that it has"], take.wait)
    take.wait_released(60)
    assert take.failed_blocks == [5]


def test_region_gone(ends):
    ends.offer("here")
    take = ends.take("later", timeout=60)
    ends.consumer.region.close()
    refused(kvpipe.NotFound, ["region 0x", "unregistered"], take.wait)
    take.wait_released(60)
    ends.refused(kvpipe.NotFound, ["region 0x", "unregistered", "open a new session"], "here")
    ends.producer.region.close()
    refused(kvpipe.NotFound, ["region 0x", "unregistered", "open a new session"], ends.producer.node.offer("k", [1], tokens=16).wait)


def test_conflicting_holds(ends):
    producer, consumer = ends.producer.node, ends.consumer.node
    ends.offer("held")
    waits = ["block 1 of group 0", "wait until that is released"]
    refused(kvpipe.Busy, waits + ["is offered"], producer.take("k", [1], tokens=16, token=TOKEN).wait)
    first = ends.take("never", [2, 1])
    refused(kvpipe.Busy, waits + ["written by a take"], consumer.offer("k", [1], tokens=16).wait)
    ends.refused(kvpipe.Busy, waits + ["written by a take"], "held", [1])
    assert first.cancel()
    ends.take("held", [1]).wait()


def test_key_in_use(ends, near):
    ends.offer("mine")
    refused(kvpipe.Busy, ['"mine"', "withdraw"], ends.producer.node.offer("mine", [2], tokens=16).wait)
    with Cache(near.socket, "thief") as other:
        refused(kvpipe.Busy, ['"mine"', '"giver"', "use another key"], other.node.offer("mine", [2], tokens=16).wait)


@pytest.mark.parametrize(
    "error, peer, said",
    [
        (kvpipe.NotFound, "nowhere", ['"nowhere"', "not known here", "peers.nodes", "peers.allow"]),
        (kvpipe.Denied, "10.1.2.3:7650", ['"10.1.2.3:7650"', "peers.allow", "peers.nodes"]),
        (kvpipe.PeerGone, "127.0.0.1:1", ['"127.0.0.1:1"', "not reached within 2s", "refused"]),
    ],
    ids=["unknown", "not allowed", "down"],
)
def test_peers(ends, error, peer, said):
    ends.refused(error, said, "k", peer=peer, timeout=2)
    refused(error if error is not kvpipe.PeerGone else kvpipe.Error, said[:1],
            ends.consumer.node.watch("k", peer, TOKEN, timeout=2).wait, within=2)


def test_deadline(ends):
    """Neither the producer's progress nor one's own is waited for any longer."""
    ends.offer("ready", consumers=2)
    ends.refused(kvpipe.Timeout, ['"ready"', "after = 0x50000", "1.5s", "progress is 0x0"], "ready", timeout=1.5, after=5 << 16)
    ends.offer("unready", [2], after=1 << 16)
    ends.refused(kvpipe.Timeout, ['"unready"', "1.5s", "progress"], "unready", timeout=1.5)


@pytest.fixture
def small(folder):
    """A daemon with little to give."""
    daemon = Daemon(folder / f"small{len(list(folder.iterdir()))}", "small", folder / "ca", config="""
        [limits]
        inflight = 4
        offers = 2
        session_pinned = "256KiB"
        total_pinned = "512KiB"
        sessions_per_uid = 3
        """)
    yield daemon
    idle(daemon)
    daemon.stop()


def test_quotas(small):
    with Cache(small.socket, "much") as cache:
        node = cache.node
        raise_it = ["unregister some, or raise that"]
        refused(kvpipe.Quota, ["262145", "131072", "limits.session_pinned = 262144"] + raise_it, lambda: node.alloc(262145))
        offers = [node.offer(f"o{i}", [i], tokens=16) for i in range(2)]
        refused(kvpipe.Quota, ["2 offers", "the limit", "withdraw some"], node.offer("o2", [2], tokens=16).wait)
        assert all(o.withdraw() for o in offers)
        takes = [node.take("never", [i], tokens=16, token=TOKEN) for i in range(4)]
        refused(kvpipe.Quota, ["4 operations", "the limit is 4", "wait for some"],
                lambda: node.take("never", [9], tokens=16, token=TOKEN).wait())
        assert all(t.cancel() for t in takes)
        node.offer("again", [1], tokens=16).withdraw()
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(kvpipe.connect(small.socket, engine_id=f"other{i}")) for i in range(2)]
            others[0].alloc(256 << 10)
            refused(kvpipe.Quota, ["131073", "limits.total_pinned = 524288"] + raise_it, lambda: others[1].alloc(131073))
            refused(kvpipe.Quota, [f"user {os.getuid()}", "limits.sessions_per_uid = 3", "close some, or raise that"],
                    lambda: kvpipe.connect(small.socket, engine_id="one too many"))


def test_completions(near):
    """A session has a third as many operations as completions; the next one is told what to wait for, or to raise."""
    with kvpipe.connect(near.socket, engine_id="small ring", cq_entries=16) as node:
        watches = [node.watch("never", None, TOKEN, timeout=60) for _ in range(5)]
        refused(kvpipe.Quota, ["5 operations", "the limit is 5", "limits.inflight", "cq_entries = 16", "wait for some"],
                lambda: node.watch("never", None, TOKEN))
        assert not any(w.done for w in watches)
    for odd in (0, 7, 12, 131072):
        refused(kvpipe.Invalid, [f"connect: cq_entries is {odd}", "a power of two from 8 to 65536"],
                lambda: kvpipe.connect(near.socket, engine_id="e", cq_entries=odd))


def test_no_daemon(folder, monkeypatch):
    def start(path):
        return ["no daemon at", f'"kvpiped --dev --socket {path}"), or name a running daemon\'s socket']

    missing = str(folder / "missing.sock")
    refused(kvpipe.Unavailable, start(missing), lambda: kvpipe.connect(missing, engine_id="e"))
    monkeypatch.setenv("KVPIPE_SOCKET", missing)
    refused(kvpipe.Unavailable, start(missing) + [missing + ", which KVPIPE_SOCKET names"], lambda: kvpipe.connect(engine_id="e"))
    left = str(folder / "left.sock")  # by a daemon that is gone
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(left)
        s.listen()
    refused(kvpipe.Unavailable, start(left), lambda: kvpipe.connect(left, engine_id="e"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        silent = str(folder / "silent.sock")
        s.bind(silent)
        s.listen()
        refused(kvpipe.Unavailable, [silent, "does not answer within ", "kvpipectl doctor"],
                lambda: kvpipe.connect(silent, engine_id="e", timeout=0.3), within=0.3)


def _as_nobody(path):
    """What connect() says to a user who may not: in a child, since a process cannot take its rights back."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            try:
                kvpipe.connect(path, engine_id="e")
                said = "connected"
            except kvpipe.Error as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as out:
        said = out.read()
    os.waitpid(child, 0)
    return said


def test_socket_permission(folder, near):
    """Of the socket, and of the folder that it lies in. The superuser may everything, and becomes somebody else."""
    outer = folder / "private"
    outer.mkdir()
    path = outer / "kvpiped.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(str(path))
        s.listen()
        os.chmod(folder, 0o755)
        for locked, mode in ((path, 0o600 if os.getuid() == 0 else 0), (outer, 0o700 if os.getuid() == 0 else 0)):
            os.chmod(outer, 0o755)
            os.chmod(locked, mode)
            said = _as_nobody(str(path))
            os.chmod(outer, 0o755)
            assert said.startswith("Denied: ") and "is for user" in said and "run as that user" in said, said
            assert str(locked) in said, said


HELLO, WELCOME, MAGIC = 1, 2, 0x4550564B


def message(kind, seq, body):
    return struct.pack("<IHHIIQQ", MAGIC, kind, 0, len(body), seq, 0, 0) + body


def test_a_client_of_another_version(near):
    """From so far in the future that its HELLO is longer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(60)
        s.connect(near.socket)
        s.send(message(HELLO, 1, struct.pack("<II", 7, 9) + bytes(1016)))
        said = s.recv(65536)
        assert b"library speaks ring protocol 7 to 9" in said and b" 1 to 1: use" in said, said
    idle(near)


def test_a_daemon_of_another_version(folder):
    """Whose WELCOME is longer."""
    path = str(folder / "future.sock")

    def answer():
        client, _ = listening.accept()
        with client:
            client.recv(65536)
            client.send(message(WELCOME, 1, struct.pack("<I", 9) + bytes(4092)))
            client.recv(1)  # until it has gone

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        refused(kvpipe.Incompatible, ["libkvpipe 0.1.0 speaks ring protocol 1 to 1", "kvpiped", "chose 9", "install matching versions"],
                lambda: kvpipe.connect(path, engine_id="e"))
        thread.join()


def test_more_offers_than_the_session_has_room_for(near):
    """The first one too many is refused, and has room once one is withdrawn."""
    cache = Cache(near.socket, "many", layers=1, blocks=8)
    with cache.node as node:
        offers = []

        def fill():
            while True:
                with contextlib.suppress(kvpipe.Busy):  # the queue of submissions is full: try again later
                    offers.append(node.offer(f"many-{len(offers)}", [len(offers) % 8], tokens=16))

        refused(kvpipe.Quota, ["1365 operations are not released yet", "cq_entries = 4096", "wait for some"], fill)
        assert len(offers) == 1365
        assert offers[0].withdraw() is True
        offers[0].wait_released(60)
        node.offer("one more", [0], tokens=16).withdraw()
