"""No late byte and no wrong byte, with the bytes in flight: cancelled, withdrawn, killed, and the memory reused at once."""

import os
import random

import kvpipe
import pytest
from caches import Cache
from engines import Engine, gone, idle

numpy = pytest.importorskip("numpy")

LAYERS, BLOCKS, SIZE = 32, 256, 2048  # 16 MiB
HALF = BLOCKS // 2
TOKENS = HALF * 16
ROUNDS = 100


@pytest.fixture(params=["local", "tcp"])
def ends(request):
    """(producer, consumer, peer)"""
    near, far = request.getfixturevalue("near"), request.getfixturevalue("far")
    tcp = request.param == "tcp"
    with Cache(near.socket, "big-p", layers=LAYERS, blocks=BLOCKS) as producer:
        with Cache((far if tcp else near).socket, "big-c", layers=LAYERS, blocks=BLOCKS) as consumer:
            yield producer, consumer, "near" if tcp else None
    idle(near), idle(far)


def words(cache):
    """All of its memory: [layer, block, word]."""
    return numpy.frombuffer(cache.region, numpy.uint64).reshape(LAYERS, BLOCKS, SIZE // 8)


def half(n):
    """Block ids in random order, of one half or the other."""
    ids = list(range(n % 2 * HALF, n % 2 * HALF + HALF))
    random.shuffle(ids)
    return ids


def offered(node, key, ids, whole):
    """An offer; one that is not whole lacks its last layer, so that no take of it is faster than who calls it off."""
    if whole:
        return node.offer(key, ids, tokens=TOKENS)
    offer = node.offer(key, [], tokens=0, sealed=False)
    offer.extend(ids, tokens=TOKENS, after=1 << 16, layered=True, sealed=True)
    node.progress(1 << 16 | LAYERS - 1)
    return offer


def released(operation, free):
    if not free:
        operation.wait_released(60)
    assert operation.released


def test_cancel_and_reuse_at_once(ends):
    producer, consumer, peer = ends
    source, target = words(producer), words(consumer)
    source[:] = 7
    cancelled = 0
    for n in range(ROUNDS):
        ids = half(n)
        offer = offered(producer.node, f"k{n}", half(0), whole=n % 2)
        take = consumer.node.take(f"k{n}", ids, peer=peer, token=offer.token, tokens=TOKENS, layered=True)
        if n % 4:
            take.wait_layer(n % 8, 60)
        released(take, take.cancel(60))
        mine = target[:, ids[0] // HALF * HALF :][:, :HALF]
        mine[:] = 1000 + n  # the memory is ours now
        cancelled += take.completion.status == kvpipe.Status.CANCELLED
        if n:  # a round later, nothing of the one before has come
            past = target[:, (n - 1) % 2 * HALF :][:, :HALF]
            assert (past == 999 + n).all(), f"round {n - 1}: late bytes"
        assert (mine == 1000 + n).all(), f"round {n}: late bytes"
        released(offer, offer.withdraw(60))
    print(f"{cancelled} of {ROUNDS} cancelled")
    assert cancelled >= ROUNDS // 2
    del source, target, mine, past


def test_withdraw_and_reuse_at_once(ends):
    producer, consumer, peer = ends
    source, target = words(producer), words(consumer)
    done = failed = 0
    for n in range(ROUNDS):
        ids = half(n)
        mine = source[:, n % 2 * HALF :][:, :HALF]
        mine[:] = 2000 + n
        offer = offered(producer.node, f"w{n}", ids, whole=n % 2)
        take = consumer.node.take(f"w{n}", half(0), peer=peer, token=offer.token, tokens=TOKENS, layered=True)
        if n % 4:
            take.wait_layer(n % 8 * 4, 60)
        released(offer, offer.withdraw(60))
        mine[:] = 1  # no reader sees this
        try:
            take.wait(60)
            done += 1
            assert (target[:, :HALF] == 2000 + n).all(), f"round {n}: done with wrong bytes"
        except (kvpipe.Expired, kvpipe.PeerGone):
            failed += 1
            assert take.failed_blocks
            take.wait_released(60)
            assert not (target[:, :HALF] == 1).any(), f"round {n}: bytes from after the withdrawal"
    print(f"{done} done, {failed} failed")
    assert failed >= ROUNDS // 2
    del source, target, mine


@pytest.mark.parametrize("round", range(4))
def test_producer_killed_while_bytes_flow(ends, near, round):
    """Done and right, or failed and, once released, quiet."""
    _, consumer, peer = ends
    target = words(consumer)
    with Engine(near.socket, "doomed", layers=LAYERS, blocks=BLOCKS) as producer:
        token = producer.ask(f"""[
            memoryview(cache.region).__setitem__(slice(None), bytes([5]) * len(cache.region)),
            cache.node.offer("flow", list(range({HALF})), tokens={TOKENS}).token.hex()][1]""")
        ids = half(0)
        take = consumer.node.take("flow", ids, peer=peer, token=bytes.fromhex(token), tokens=TOKENS, layered=True)
        take.wait_layer(round * 4, 60)
        os.kill(producer.process.pid, 9)
        try:
            take.wait(60)
            assert (target[:, :HALF] == 0x0505050505050505).all()
        except kvpipe.PeerGone:
            take.wait_released(60)
            target[:, :HALF] = 9
            gone(near, "doomed")
            assert (target[:, :HALF] == 9).all(), "late bytes"
    del target


@pytest.mark.parametrize("round", range(4))
def test_consumer_killed_while_bytes_flow(ends, near, far, round):
    """The offer is whole for the next one."""
    producer, consumer, peer = ends
    there = near if peer is None else far
    source, target = words(producer), words(consumer)
    source[:] = 6
    offer = producer.node.offer("flow", half(0), tokens=TOKENS)
    with Engine(there.socket, "doomed", layers=LAYERS, blocks=BLOCKS) as doomed:
        doomed.ask(f"""
            take = cache.node.take("flow", list(range({HALF})), peer={peer!r}, token={offer.token!r}, tokens={TOKENS}, layered=True)
            take.wait_layer({round * 4}, 60)
            """)
        os.kill(doomed.process.pid, 9)
    if offer.done:  # it was so fast that it consumed it
        assert offer.wait().bytes == LAYERS * HALF * SIZE
    else:
        try:
            consumer.node.take("flow", half(0), peer=peer, token=offer.token, tokens=TOKENS).wait(60)
            assert (target[:, :HALF] == 6).all()
        except kvpipe.Expired as error:
            assert "consumed" in str(error)
    offer.wait(60)
    del source, target
