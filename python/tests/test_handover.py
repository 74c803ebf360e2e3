"""Offers and takes, over local and tcp."""

import contextlib
import os
import select

import kvpipe
import pytest
from caches import BLOCK, BLOCK_SIZE, CONTENT, FINGERPRINT, HEADS, Cache, collect, view
from engines import heard, until

numpy = pytest.importorskip("numpy")


@pytest.fixture(params=["local", "tcp"])
def ends(request):
    """(producer, consumer, peer)"""
    producer, consumer = request.getfixturevalue("pair" if request.param == "local" else "apart")
    return producer, consumer, None if request.param == "local" else "near"


def test_blocks_arrive(ends):
    producer, consumer, peer = ends
    for i, block in enumerate((4, 0, 31)):
        producer.fill(block, i)
    offer = producer.node.offer("k", [4, 0, 31], tokens=48, tag=5, trace="trace-1")
    assert len(offer.token) == 16 and offer.tokens == 48
    take = consumer.node.take("k", numpy.array([9, 3, 7], numpy.int32), peer=peer, token=offer.token, tokens=48, tag=6)
    done = done_take = take.wait(60)
    assert (done.status, done.op, done.tag, done.bytes) == (kvpipe.Status.DONE, take, 6, 2 * 3 * BLOCK)
    assert done.released and take.released and take.done and done.terminal and take.failed_blocks == []
    assert all(consumer.holds(block, i) for i, block in enumerate((9, 3, 7)))
    assert bytes(consumer.block(0, 8)) == bytes(BLOCK)
    done = offer.wait(60)
    assert (done.status, done.tag, done.released) == (kvpipe.Status.DONE, 5, True)
    assert take.wait() == take.completion == done_take


def test_only_the_missing_tokens(ends):
    """Tokens 20 to 40 of 48: the second half of block 1 and the first half of block 2."""
    producer, consumer, peer = ends
    for i in range(3):
        producer.fill(i, i)
    offer = producer.node.offer(b"\x00key", [0, 1, 2], tokens=48)
    consumer.node.take(b"\x00key", [10, 11], peer=peer, token=offer.token, tokens=(20, 40)).wait(60)
    row = HEADS * CONTENT
    assert consumer.block(0, 10)[4 * row :] == producer.block(0, 1)[4 * row :]
    assert bytes(consumer.block(0, 10)[: 4 * row]) == bytes(4 * row)
    assert consumer.block(1, 11)[: 8 * row] == producer.block(1, 2)[: 8 * row]
    assert bytes(consumer.block(1, 11)[8 * row :]) == bytes(8 * row)


def test_extend_and_seal(ends):
    producer, consumer, peer = ends
    offer = producer.node.offer("grows", [], tokens=0, sealed=False)
    take = consumer.node.take("grows", [1, 2, 3], peer=peer, token=offer.token, tokens=40, layered=True)
    producer.fill(5, 5)
    producer.fill(6, 6)
    offer.extend([5, 6], tokens=24)
    assert not take.done and offer.tokens == 24
    with pytest.raises(kvpipe.Timeout) as error:
        take.wait(0.05)
    assert error.value.completion is None and "0.05 s" in str(error.value)
    producer.fill(7, 7)
    offer.extend([6, 7], tokens=40)  # begins with the block in which the offer ended
    offer.seal()
    take.wait_layer(1, 60)
    take.wait(60)
    assert consumer.holds(1, 5) and consumer.holds(2, 6)
    half = 8 * HEADS * CONTENT
    assert consumer.block(1, 3)[:half] == producer.block(1, 7)[:half]
    with pytest.raises(kvpipe.Invalid, match="tokens is 8"):
        offer.extend([1], tokens=8)
    offer.wait(60)


@pytest.mark.parametrize("left_out", [None, []], ids=["None", "no blocks"])
def test_the_blocks_of_an_opaque_group_come_once(near, left_out):
    """With the piece after which they are final: two pieces' would go to the same blocks of the take."""
    def open_one(engine):
        node = kvpipe.connect(near.socket, engine_id=engine)
        region = node.alloc(2 * 8 * BLOCK)
        state = kvpipe.View(region, 8 * BLOCK, layer=1, part="ssm", group=1, kind="opaque", num_blocks=8, block_stride=BLOCK, content_bytes=BLOCK)
        node.set_layout([view(region, 0, blocks=8), state], FINGERPRINT)
        return node, memoryview(region)

    producer, source = open_one("p")
    consumer, target = open_one("c")
    with producer, consumer:
        source[:] = bytes(i % 251 for i in range(len(source)))
        offer = producer.offer("k", [[0], left_out], tokens=16, sealed=False)
        offer.extend([[1], [3]], tokens=32)
        with pytest.raises(kvpipe.Invalid, match="group 1 is opaque, and the offer of key .* has its blocks already"):
            offer.extend([[2], [4]], tokens=48)
        offer.extend([[2], left_out], tokens=48, sealed=True)
        consumer.take("k", [[5, 6], [7]], token=offer.token, tokens=32).wait(60)
        assert target[5 * BLOCK : 7 * BLOCK] == source[: 2 * BLOCK]
        assert target[(8 + 7) * BLOCK :] == source[(8 + 3) * BLOCK : (8 + 4) * BLOCK]


def test_after_waits_for_progress(ends):
    producer, consumer, peer = ends
    step = 7 << 16
    offer = producer.node.offer("later", [2], tokens=16, after=step | 0xFFFF)
    take = consumer.node.take("later", [2], peer=peer, token=offer.token, tokens=16, after=3 << 16)
    with pytest.raises(kvpipe.Timeout):
        take.wait(0.1)
    producer.fill(2, 2)
    producer.node.progress(step | 0xFFFF)
    with pytest.raises(kvpipe.Timeout):
        take.wait(0.1)
    consumer.node.progress(3 << 16)
    take.wait(60)
    assert consumer.holds(2, 2)


def test_layers_come_as_they_are_written(ends):
    """With more bytes than ride inside a message between daemons: those wait for the last layer."""
    producer, consumer, peer = ends
    blocks = list(range(32))
    offer = producer.node.offer("layers", [], tokens=0, sealed=False)
    step = 2 << 16
    offer.extend(blocks, tokens=16 * 32, after=step, layered=True, sealed=True)
    take = consumer.node.take("layers", blocks, peer=peer, token=offer.token, tokens=16 * 32, layered=True)
    for block in blocks:
        producer.fill(block, block)
    producer.node.progress(step | 1)
    take.wait_layer(0, 60)
    assert consumer.block(0, 31) == producer.block(0, 31)
    with pytest.raises(kvpipe.Timeout):
        take.wait_layer(1, 0.05)
    producer.node.progress(step | 2)
    take.wait_layer(1, 60)
    take.wait(60)
    assert all(consumer.holds(block, block) for block in blocks)


@pytest.mark.parametrize("kind", ["local", "tcp"])
def test_layers_of_a_group_come_as_they_are_written(near, far, kind):
    """Layers 0 and 2 are of the group that is left out: they say nothing about 1 and 3, which are not written yet."""
    def open_one(daemon, engine):
        node = kvpipe.connect(daemon.socket, engine_id=engine)
        region = node.alloc(4 * 32 * BLOCK)
        node.set_layout([view(region, layer, group=layer % 2) for layer in range(4)], FINGERPRINT)
        return node, memoryview(region)

    producer, source = open_one(near, "p")
    consumer, target = open_one(far if kind == "tcp" else near, "c")
    with producer, consumer:
        blocks = [None, list(range(32))]
        offer = producer.offer("layers", [], tokens=0, sealed=False)
        step = 2 << 16
        offer.extend(blocks, tokens=16 * 32, after=step, layered=True, sealed=True)
        take = consumer.take("layers", blocks, peer="near" if kind == "tcp" else None, token=offer.token, tokens=16 * 32, layered=True)
        with pytest.raises(kvpipe.Invalid, match="layer 2 is not among those"):
            take.wait_layer(2, 0)
        for layer in (1, 3):
            place = slice(layer * 32 * BLOCK, (layer + 1) * 32 * BLOCK)
            producer.progress(step | layer)  # the layers before it are written
            with pytest.raises(kvpipe.Timeout):
                take.wait_layer(layer, 0.2)
            source[place] = bytes(i % 251 for i in range(32 * BLOCK))
            producer.progress(step | layer + 1)
            take.wait_layer(layer, 60)
            assert target[place] == source[place]
        take.wait(60)


def test_poll_gives_the_end_that_comes_between_two_looks_at_a_layer(pair, monkeypatch):
    producer, consumer = pair
    token, lib = os.urandom(16), consumer.node._session.lib
    take = consumer.node.take("late", [1], token=token, tokens=16, layered=True)

    def ends_after(handle, op, layer, ns, plain=lib.wait_layer):
        code = plain(handle, op, layer, 1)
        if code != 0:
            producer.node.offer("late", [2], tokens=16, token=token)
            until(lambda: take.released, "the take's end")
        return code

    monkeypatch.setattr(lib, "wait_layer", ends_after)
    take.wait_layer(1, 60)
    assert [(end.op, end.status) for end in consumer.node.poll()] == [(take, kvpipe.Status.DONE)]


def test_a_take_that_is_not_layered_has_all_layers_at_once(pair):
    producer, consumer = pair
    offer = producer.node.offer("k", [0], tokens=16)
    take = consumer.node.take("k", [0], token=offer.token, tokens=16)
    take.wait_layer(1, 60)
    assert take.done


def test_take_before_offer(ends):
    producer, consumer, peer = ends
    token = os.urandom(32)
    take = consumer.node.take("early", [1], peer=peer, token=token, tokens=16)
    producer.fill(3, 3)
    producer.node.offer("early", [3], tokens=16, token=token)
    take.wait(60)
    assert consumer.holds(1, 3)


def test_cancel_gives_the_memory_back(ends):
    producer, consumer, peer = ends
    token = os.urandom(16)
    take = consumer.node.take("never", [1, 2], peer=peer, token=token, tokens=32)
    if not take.cancel(60):
        take.wait_released(60)
    assert take.released and take.completion.status == kvpipe.Status.CANCELLED
    with pytest.raises(kvpipe.Cancelled) as error:
        take.wait(60)
    assert error.value.completion == take.completion
    assert take.cancel(60)  # it has ended: True again
    again = producer.node.offer("other", [5], tokens=16)
    consumer.node.take("other", [1], peer=peer, token=again.token, tokens=16).wait(60)


def test_withdraw(ends):
    producer, consumer, peer = ends
    offer = producer.node.offer("k", [1], tokens=16)
    assert offer.withdraw(60) and offer.released
    with pytest.raises(kvpipe.Cancelled):
        offer.wait(60)
    with pytest.raises(kvpipe.Expired, match="k"):
        consumer.node.take("k", [1], peer=peer, token=offer.token, tokens=16).wait(60)


def test_asking_without_waiting(ends):
    """poll() gives the ends of those that nobody waited for."""
    producer, consumer, peer = ends
    offer = producer.node.offer("asked", [1], tokens=16, tag=1)
    take = consumer.node.take("missing", [1, 2], peer=peer, token=offer.token, tokens=32, tag=2)
    offer.withdraw(0)
    take.cancel(0)
    for node, tag in ((producer.node, 1), (consumer.node, 2)):
        heard = []
        while not any(c.released for c in heard):
            select.select([node.fileno()], [], [], 30)
            heard += [c for c in node.poll() if c.tag == tag]
        assert heard[0].status == kvpipe.Status.CANCELLED and heard[0].op in (offer, take)


def test_watch_and_drop(ends):
    producer, consumer, peer = ends
    offer = producer.node.offer("queued", [1], tokens=16)
    consumer.node.watch("queued", peer, offer.token, timeout=60).wait(60)
    consumer.node.drop("queued", peer, offer.token).wait(60)
    assert offer.wait(60).status == kvpipe.Status.DONE
    offer.wait_released(60)


@pytest.mark.parametrize(
    "error, said, change",
    [
        (kvpipe.Denied, "token", {"token": b"x" * 16}),
        (kvpipe.Incompatible, "content", {"content": b"other"}),
        (kvpipe.Invalid, "blocks", {"blocks": [1, 1], "tokens": 32}),
        (kvpipe.Invalid, "blocks", {"blocks": [1, 2]}),
        (kvpipe.Invalid, "id 32", {"blocks": [32]}),
        (kvpipe.Invalid, "part 3 of 2", {"part": (3, 2)}),
        (kvpipe.Invalid, "part is (0, 0)", {"part": (0, 0)}),
        (kvpipe.Invalid, "token: 5 bytes", {"token": b"short"}),
        (kvpipe.Invalid, "key", {"key": ""}),
        (kvpipe.Invalid, "key: 300 bytes", {"key": "k" * 300}),
        ((kvpipe.NotFound, kvpipe.Unavailable), "nowhere", {"peer": "nowhere"}),
        (kvpipe.Timeout, "", {"key": "unknown", "timeout": 0.2}),
        (kvpipe.Invalid, "tag", {"tag": -1}),
        (kvpipe.Invalid, "timeout", {"timeout": 0}),
        (kvpipe.Invalid, "token is missing", {"token": b""}),
        (kvpipe.NotFound, "", {"blocks": [1, 2], "tokens": 32}),
    ],
    ids=lambda v: str(list(v)) if isinstance(v, dict) else "",
)
def test_what_is_refused(pair, error, said, change):
    producer, consumer = pair
    offer = producer.node.offer("k", [1], tokens=16, content=b"digest")
    call = {"key": "k", "blocks": [1], "tokens": 16, "token": offer.token, "content": b"digest", **change}
    with pytest.raises(error) as caught:
        consumer.node.take(**call).wait(60)
    assert said in str(caught.value), str(caught.value)
    assert len(str(caught.value)) > 10


def test_fingerprints_must_agree(near):
    with Cache(near.socket, "p") as producer:
        with Cache(near.socket, "c", fingerprint={**FINGERPRINT, "layers": 3}) as consumer:
            offer = producer.node.offer("k", [1], tokens=16)
            take = consumer.node.take("k", [1], token=offer.token, tokens=16)
            with pytest.raises(kvpipe.Incompatible, match="layers"):
                take.wait(60)
            assert take.failed_blocks == [1] and take.completion.failed[0].group == 0


def test_holds(pair):
    producer, consumer = pair
    first = producer.node.offer("a", [1], tokens=16)
    second = producer.node.offer("b", [1], tokens=16)  # shared holds agree
    consumer.node.take("a", [5], token=first.token, tokens=16).wait(60)
    with pytest.raises(kvpipe.Busy, match="1"):
        producer.node.take("x", [1], token=b"t" * 16, tokens=16).wait(60)
    with pytest.raises(kvpipe.Busy, match="b"):
        producer.node.offer("b", [2], tokens=16).wait(60)
    second.withdraw()


def test_lease(pair):
    producer, _ = pair

    def expires():
        offer = producer.node.offer("short", [1], tokens=16, lease=0.1)
        try:
            offer.wait(60)
        finally:
            offer.wait_released(60)

    assert isinstance(heard(expires, 0.1, "the daemon does not answer"), kvpipe.Expired)
    producer.node.offer("short", [1], tokens=16).withdraw()


def test_several_consumers_and_parts(near):
    with Cache(near.socket, "p") as producer, Cache(near.socket, "c1") as one, Cache(near.socket, "c2") as two:
        producer.fill(1, 1)
        producer.fill(2, 2)
        offer = producer.node.offer("k", [1, 2], tokens=32, consumers=2)
        one.node.take("k", [1, 2], token=offer.token, tokens=32).wait(60)
        assert not offer.done
        for i in range(2):
            two.node.take("k", [8 + i], token=offer.token, tokens=(16 * i, 16 * i + 16), part=(i, 2)).wait(60)
        offer.wait(60)
        assert one.holds(2, 2) and two.holds(8, 1) and two.holds(9, 2)


def test_groups(near):
    """Two groups with lists of their own; one has a hole where its window has moved on."""
    def open_one(engine):
        node = kvpipe.connect(near.socket, engine_id=engine)
        region = node.alloc(2 * 8 * BLOCK)
        node.set_layout([view(region, 0, blocks=8), view(region, 1, blocks=8, group=1)], FINGERPRINT)
        return node, memoryview(region)

    producer, source = open_one("p")
    consumer, target = open_one("c")
    source[:] = bytes(i % 251 for i in range(len(source)))
    offer = producer.offer("k", [[0, 1], [kvpipe.NO_BLOCK, 3]], tokens=32)
    take = consumer.take("k", [[5, 6], [kvpipe.NO_BLOCK, 7]], token=offer.token, tokens=32)
    assert take.wait(60).bytes == 3 * BLOCK
    assert target[5 * BLOCK : 7 * BLOCK] == source[: 2 * BLOCK]
    assert target[(8 + 7) * BLOCK :] == source[(8 + 3) * BLOCK : (8 + 4) * BLOCK]
    failed = consumer.take("gone", [[1], [2]], token=b"0" * 16, tokens=16, timeout=0.1)
    with pytest.raises(kvpipe.Timeout):
        failed.wait(60)
    assert failed.failed_blocks == [[1], [2]]
    producer.close()
    consumer.close()


@pytest.mark.parametrize("kind", ["local", "tcp"])
def test_schedulers_hand_over_for_all_ranks(near, far, kind):
    """TP 1 with tokens first to TP 2 with heads first; each rank gets a completion of its own."""
    there = near if kind == "local" else far
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(Cache(near.socket, "one"))
        ranks = [stack.enter_context(Cache(there.socket, "tp", tp=2, rank=i, order="HND")) for i in range(2)]
        scheduler = stack.enter_context(kvpipe.connect(there.socket, engine_id="tp", role="scheduler"))
        assert scheduler.instance == ranks[0].node.instance
        producer.fill(3, 1)
        offer = producer.node.offer("k", [3], tokens=16)
        take = scheduler.take("k", [4], peer="near" if kind == "tcp" else None, token=offer.token, tokens=16, tag=42)
        done = take.wait(60)
        assert done.bytes == 2 * BLOCK and done.rank == 0xFFFFFFFF
        for i, rank in enumerate(ranks):
            told = collect(rank.node, 1)
            assert [(c.tag, c.op, c.status, c.rank, c.bytes, c.op_id) for c in told] == [
                (42, None, kvpipe.Status.DONE, i, BLOCK, done.op_id)
            ]
            for layer in range(2):
                whole = numpy.frombuffer(producer.block(layer, 3), numpy.uint8).reshape(BLOCK_SIZE, HEADS, CONTENT)
                part = numpy.frombuffer(rank.block(layer, 4), numpy.uint8).reshape(2, BLOCK_SIZE, CONTENT)
                assert (part == whole[:, 2 * i : 2 * i + 2].transpose(1, 0, 2)).all()
                del whole, part
