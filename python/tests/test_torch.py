"""kvpipe.torch: what vLLM's first P/D API promised, in its own tests' numbers."""

import random
import threading

import kvpipe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from kvpipe.torch import LookupBuffer, Pipe  # noqa: E402


@pytest.fixture(params=["one node", "two nodes"])
def two(request, near, far):
    """Two engines, and how each names the node of the other."""
    there = near if request.param == "one node" else far
    with kvpipe.connect(near.socket, engine_id="a") as a, kvpipe.connect(there.socket, engine_id="b") as b:
        yield a, b, *((None, None) if there is near else (b.advertise, near.node))


@pytest.fixture
def pipes(two, name):
    a, b, of_a, of_b = two
    with Pipe(a, name, 0, peer=of_a, timeout=60) as one, Pipe(b, name, 1, peer=of_b, timeout=60) as other:
        yield one, other


@pytest.fixture
def buffers(two, name):
    a, b, _, peer = two
    with LookupBuffer(a, name, capacity=170_000) as own, LookupBuffer(b, name, peer=peer) as select:
        yield own, select


def same(a, b):
    return (a is None and b is None) or (a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b))


def test_500_rounds(pipes):
    """Three tensors a round, one in twenty of them None, over one pipe whose direction changes."""
    rng = random.Random(0)
    torch.manual_seed(0)
    for i in range(500):
        tx, rx = pipes if i % 10 > 3 else reversed(pipes)
        shape = (rng.randrange(1, 40), rng.randrange(1, 60))
        kinds = [torch.float32, torch.bfloat16, torch.float16, torch.bool, torch.int64]
        sent = [None if rng.random() < 0.05 else (torch.rand(shape) * 9).to(rng.choice(kinds)) for _ in range(3)]
        for t in sent:
            tx.send_tensor(t)
        assert all(same(t, rx.recv_tensor()) for t in sent)


def test_both_directions_at_once(pipes):
    one, other = pipes
    failed = []

    def send(pipe, sign):
        try:
            for i in range(200):
                pipe.send_tensor(torch.full((500,), sign * i))
        except kvpipe.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=(one, 1)), threading.Thread(target=send, args=(other, -1))]
    for thread in threads:
        thread.start()
    for i in range(200):
        assert int(other.recv_tensor()[0]) == i and int(one.recv_tensor()[0]) == -i
    for thread in threads:
        thread.join()
    assert not failed


def test_what_is_sent_may_be_written_at_once(pipes):
    tx, rx = pipes
    tensor = torch.arange(1000)
    tx.send_tensor(tensor)
    tensor.zero_()
    assert torch.equal(rx.recv_tensor(), torch.arange(1000))


def test_the_other_side_closes(pipes):
    one, other = pipes
    one.send_tensor(torch.tensor(7))
    one.send_tensor(None)
    one.close()
    one.close()
    assert int(other.recv_tensor()) == 7 and other.recv_tensor() is None
    with pytest.raises(kvpipe.Closed):
        other.recv_tensor()
    with pytest.raises(kvpipe.Closed):
        one.send_tensor(None)


def test_no_call_waits_for_ever(near, name):
    with kvpipe.connect(near.socket, engine_id="a") as node:
        with Pipe(node, name, 0, timeout=0.05) as pipe, pytest.raises(kvpipe.Timeout):
            pipe.recv_tensor()
        with LookupBuffer(node, name, timeout=0.05) as select:
            with pytest.raises(kvpipe.Timeout):
                select.drop_select(None, None)
            with pytest.raises(kvpipe.Timeout):
                select.get("nothing")


def test_a_side_that_cannot_open_leaves_nothing(near, name):
    with kvpipe.connect(near.socket, engine_id="a") as node:
        for rank in (2, -1, None, "0"):
            with pytest.raises(kvpipe.Invalid, match="two sides, 0 and 1"):
                Pipe(node, name, rank)
        with pytest.raises(kvpipe.Invalid, match="peer"):  # of its two ends only the second has a peer
            Pipe(node, name, 0, peer=5)
        with Pipe(node, name, 0), pytest.raises(kvpipe.Busy):
            Pipe(node, name, 0)


def test_tensors_go_where_they_are_wanted(near, name):
    with kvpipe.connect(near.socket, engine_id="a") as node:
        with Pipe(node, name, 0) as tx, Pipe(node, name, 1, device="meta") as rx:
            tx.send_tensor(torch.ones(3))
            tx.send_tensor(None)
            assert rx.recv_tensor().device.type == "meta" and rx.recv_tensor() is None
        with LookupBuffer(node, name, capacity=4096) as own, LookupBuffer(node, name, device="meta") as select:
            own.insert(torch.tensor([1]), None, torch.ones(3), None, None)
            assert [m if m is None else m.device.type for m in select.drop_select(None, None)] == ["meta", None, "meta", None, None]


def test_tensors_stay_in_host_memory(pipes):
    """Whatever device torch makes others on."""
    tx, rx = pipes
    for tensor in (torch.ones(3), torch.ones(0, 3)):
        tx.send_tensor(tensor)
        with torch.device("meta"):
            got = rx.recv_tensor()
        assert got.device.type == "cpu" and torch.equal(got, tensor)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor(pipes, layout):
    """It has no shape."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    with pytest.raises(kvpipe.Invalid, match="a nested tensor cannot be sent"):
        pipes[0].send_tensor(nested)


def test_200_entries_in_other_orders(buffers):
    """1,700 bytes each under a threshold of 170,000, inserted and selected in orders of their own, from two threads."""
    own, select = buffers
    orders = [list(range(200)), list(range(200))]
    # With room for half of the entries, both sides can only meet when their orders differ by less than that.
    for seed, order in enumerate(orders):
        rng = random.Random(seed)
        for start in range(0, 200, 50):
            part = order[start:start + 50]
            rng.shuffle(part)
            order[start:start + 50] = part
    failed = []

    def insert():
        try:
            for i in orders[0]:
                tokens, roi = torch.tensor([i] * 10), torch.tensor([True] * 10)
                key, hidden = torch.full((400,), float(i)), torch.full((10,), i % 256, dtype=torch.uint8)
                own.insert(tokens, roi, key, None, hidden)
        except kvpipe.Error as error:
            failed.append(error)

    thread = threading.Thread(target=insert)
    thread.start()
    for i in orders[1]:
        tokens, roi, key, value, hidden = select.drop_select(torch.tensor([i] * 10), torch.tensor([True] * 10))
        assert tokens.tolist() == [i] * 10 and roi.dtype == torch.bool and roi.all() and value is None
        assert torch.equal(key, torch.full((400,), float(i))) and hidden.tolist() == [i % 256] * 10
    thread.join()
    assert not failed
    own.insert(torch.tensor([1]), None, None, torch.zeros(169_992, dtype=torch.uint8), None)  # all of it is free again


def test_none_matches_anything(buffers):
    own, select = buffers
    for i in range(3):
        own.insert(torch.tensor([i, i]), torch.tensor([True, False]), None, None, torch.tensor([i]))
    assert [int(select.drop_select(None, None)[4]) for _ in range(3)] == [0, 1, 2]


def test_a_key_keeps_what_it_has(buffers):
    own, select = buffers
    own.put("k", torch.arange(3))
    own.put("none", None)
    assert select.get("k").tolist() == select.get("k").tolist() == [0, 1, 2] and select.get("none") is None
