"""Engines of several processes: a rank or the scheduler dies, a newer instance comes, ranks offer each for itself."""

import contextlib
import os
import signal

import kvpipe
import pytest
from caches import Cache, collect
from engines import Engine, idle, until

numpy = pytest.importorskip("numpy")

BLOCKS = list(range(16))
TOKENS = 16 * len(BLOCKS)
TOKEN = b"0123456789abcdef"
STEP = 1 << 16


@pytest.fixture
def sides(near, far):
    """(producer with two layers of which one is written, the socket of the consumers' node)"""
    with Cache(near.socket, "p") as producer:
        for block in BLOCKS:
            producer.fill(block, block)
        producer.offer = producer.node.offer("k", [], tokens=0, sealed=False, token=TOKEN)
        producer.offer.extend(BLOCKS, tokens=TOKENS, after=STEP, layered=True, sealed=True)
        producer.node.progress(STEP | 1)
        yield producer, far.socket
    idle(near), idle(far)


def open_engine(stack, socket, **more):
    """A scheduler and rank 0 here, rank 1 in a process of its own."""
    mine = stack.enter_context(Cache(socket, "tp", tp=2, **more))
    other = stack.enter_context(Engine(socket, "tp", tp=2, rank=1, **more))
    return stack.enter_context(kvpipe.connect(socket, engine_id="tp", role="scheduler")), mine, other


def ask_for(scheduler):
    take = scheduler.take("k", BLOCKS, peer="near", token=TOKEN, tokens=TOKENS, layered=True, tag=7)
    take.wait_layer(0, 60)
    return take


def told(node, op_id):
    """The one end of an operation that a rank hears of."""
    heard = collect(node, 1)
    while not heard[-1].released:
        heard += collect(node, 1)
    assert {c.op_id for c in heard} == {op_id} and [c.terminal for c in heard].count(True) == 1, heard
    return heard[0]


def test_a_rank_is_killed(sides):
    producer, socket = sides
    with contextlib.ExitStack() as stack:
        scheduler, mine, other = open_engine(stack, socket)
        take = ask_for(scheduler)
        os.kill(other.process.pid, signal.SIGKILL)
        with pytest.raises(kvpipe.Error, match="rank 1") as error:
            take.wait(60)
        assert isinstance(error.value, kvpipe.Unavailable), error.value
        take.wait_released(60)
        assert take.failed_blocks == BLOCKS
        end = told(mine.node, take.completion.op_id)
        assert (end.status, end.tag) == (kvpipe.Status.FAILED, 7)
        other.process.wait()
        # Its successor, and the rest as it is, take what was offered.
        heir = stack.enter_context(Engine(socket, "tp", tp=2, rank=1))
        take = ask_for(scheduler)
        producer.node.progress(STEP | 2)
        assert take.wait(60).bytes == 2 * sum(len(mine.block(0, b)) for b in BLOCKS) * 2
        assert told(mine.node, take.completion.op_id).status == kvpipe.Status.DONE
        assert heir.ask("[c.status for c in collect(cache.node, 1)]") == [kvpipe.Status.DONE]
        producer.offer.wait(60)


def test_the_scheduler_is_killed(sides):
    producer, socket = sides
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(Cache(socket, "tp", tp=2, rank=i)) for i in range(2)]
        process = stack.enter_context(Engine(socket, "tp", scheduler=True))
        process.ask(f"""
            take = node.take("k", {BLOCKS}, peer="near", token={TOKEN!r}, tokens={TOKENS}, layered=True)
            take.wait_layer(0, 60)
            """)
        os.kill(process.process.pid, signal.SIGKILL)
        ends = [collect(rank.node, 1)[0] for rank in ranks]
        assert [e.status for e in ends] == [kvpipe.Status.FAILED] * 2 and ends[0].op_id == ends[1].op_id, ends
        scheduler = stack.enter_context(kvpipe.connect(socket, engine_id="tp", role="scheduler"))
        take = ask_for(scheduler)
        producer.node.progress(STEP | 2)
        take.wait(60)


def test_a_newer_instance_fences_a_hung_one(sides, far):
    """The old one is stopped, not dead: its operations end, its memory is let go, its place is taken."""
    producer, socket = sides
    with Engine(socket, "hung", instance="one") as old:
        old.ask(f"""
            take = cache.node.take("k", {BLOCKS}, peer="near", token={TOKEN!r}, tokens={TOKENS}, layered=True)
            take.wait_layer(0, 60)
            """)
        old.signal(signal.SIGSTOP)
        with Cache(socket, "hung", instance="two") as new:
            take = new.node.take("k", BLOCKS, peer="near", token=TOKEN, tokens=TOKENS)
            producer.node.progress(STEP | 2)
            take.wait(60)
            assert all(new.holds(b, b) for b in BLOCKS)
            assert [s["instance"] for s in far.ask("sessions") if s["engine"] == "hung"] == ["two"]
        old.signal(signal.SIGCONT)
        with pytest.raises(kvpipe.Closed, match="two"):
            old.ask("take.wait(60)")
        old.ask("take.wait_released(60)")
        with pytest.raises(kvpipe.Closed):
            old.ask("cache.node.take('x', [1], token=b'0' * 16, tokens=16)")
        with pytest.raises(kvpipe.Closed, match="replaced"):
            old.ask(f"kvpipe.connect({socket!r}, engine_id='hung', instance='one')")


def test_ranks_offer_each_for_itself(near, far):
    """Under one key and token; nothing can be taken before all are in, and when one goes all are out. One that dies has not gone."""
    with contextlib.ExitStack() as stack:
        consumer = stack.enter_context(Cache(far.socket, "c"))
        ranks = [stack.enter_context(Engine(near.socket, "tp", tp=2, rank=i)) for i in range(2)]
        offer = f"offer = cache.node.offer('ours', {BLOCKS[:4]}, tokens=64, token={TOKEN!r}, consumers=3)"
        for rank in ranks:
            rank.ask("[cache.fill(b, b) for b in range(4)]")
        take = consumer.node.take("ours", BLOCKS[:4], peer="near", token=TOKEN, tokens=64)
        ranks[0].ask(offer)
        with pytest.raises(kvpipe.Timeout):
            take.wait(0.1)
        ranks[1].ask(offer)
        take.wait(60)
        for layer in range(2):
            for block in range(4):
                rows = numpy.frombuffer(consumer.block(layer, block), numpy.uint8).reshape(16, 2, -1)
                want = [(block * 31 + layer * 7 + n) & 0xFF for n in range(rows.size // 2)]
                assert all(rows[:, rank].ravel().tolist() == want for rank in range(2))
                del rows
        os.kill(ranks[0].process.pid, signal.SIGKILL)
        ranks[0].process.wait()
        consumer.node.take("ours", BLOCKS[4:8], peer="near", token=TOKEN, tokens=64).wait(60)
        assert all(bytes(consumer.block(0, a)) == bytes(consumer.block(0, b)) for a, b in zip(BLOCKS[:4], BLOCKS[4:8]))
        until(lambda: [o["state"] for o in near.ask("offers")] == ["orphaned"], "the rank's death is noticed")
        ranks[1].ask("offer.withdraw(60)")
        with pytest.raises(kvpipe.Expired, match="was withdrawn"):
            consumer.node.take("ours", BLOCKS[:4], peer="near", token=TOKEN, tokens=64).wait(60)
        ranks[1].ask("cache.close()")
    idle(near), idle(far)
