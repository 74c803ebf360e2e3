"""Lookup buffers: what matches what, who waits for whom, how much fits; within a node and between two."""

import asyncio
import copy
import gc
import pickle
import random
import sys
import threading

import kvpipe
import numpy
import pytest
from daemons import Daemon
from engines import why_late


@pytest.fixture
def ends(two, name):
    a, b, peer = two
    with a.lookup_buffer(name, capacity=1 << 20) as own, b.lookup_buffer(name, peer=peer) as sel:
        yield own, sel


def ids(*tokens):
    return numpy.array(tokens)


def in_other_hands(value):
    """As another process has it, by each way of telling it, and as a copy here."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(value, protocol))
    yield copy.copy(value)
    yield copy.deepcopy(value)


def insert(own, number, tokens, roi=None):
    own.insert(tokens, roi, None, numpy.array([number]), None)


def number(entry):
    return int(entry[3][0])


def in_threads(*calls):
    """Runs them at the same time, and returns their results in that order."""
    results = [None] * len(calls)

    def run(i):
        try:
            results[i] = calls[i]()
        except kvpipe.Error as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    return threads, results


def test_members_come_as_they_went(ends):
    own, sel = ends
    key = numpy.arange(60, dtype=numpy.float16).reshape(3, 4, 5)
    own.insert(ids(1, 2, 3), numpy.array([True, False, True]), key.T, None, numpy.zeros((0, 7), numpy.int8))
    entry = sel.drop_select(ids(1, 3), framework="numpy")
    assert isinstance(entry, tuple) and len(entry) == 5 and entry.matched == 2
    tokens, roi, got, value, hidden = entry
    assert tokens.tolist() == [1, 2, 3] and roi.dtype == bool and roi.tolist() == [True, False, True]
    assert numpy.array_equal(got, key.T) and got.dtype == numpy.float16 and value is None and hidden.shape == (0, 7)
    with pytest.raises(kvpipe.Timeout):  # it was removed
        sel.drop_select(ids(1, 3), timeout=0.05)


def test_prefix_and_exact(ends):
    own, sel = ends
    insert(own, 1, ids(5, 6, 7, 8))
    insert(own, 2, ids(5, 6, 9))
    insert(own, 3, ids(5))
    for query, match, want, matched in [
        (ids(5, 6, 9, 1, 2), "prefix", 2, 3),   # the entry is shorter
        (ids(5), "exact", 3, 1),
        (ids(5, 6), "prefix", 1, 2),            # the query is
    ]:
        entry = sel.drop_select(query, match=match)
        assert (number(entry), entry.matched) == (want, matched)
    insert(own, 4, ids(5, 6))
    assert "no entry matched" in why_late(lambda: sel.drop_select(ids(5), match="exact", timeout=2), 2)
    assert number(sel.drop_select(ids(9, 5, 6), numpy.array([False, True, True]), match="exact")) == 4


def test_none_matches_anything_oldest_first(ends):
    own, sel = ends
    insert(own, 1, ids(1))
    own.insert(None, None, None, numpy.array([2]), None)
    insert(own, 3, ids(2), numpy.array([True]))
    assert [number(sel.drop_select(None, None)) for _ in range(3)] == [1, 2, 3]


def test_zero_length_is_refused(ends):
    own, sel = ends
    for call in (lambda: insert(own, 1, ids(1, 2), numpy.zeros(2, bool)), lambda: insert(own, 1, numpy.zeros(0, int)),
                 lambda: sel.drop_select(ids(1), numpy.array([False])), lambda: sel.drop_select(numpy.zeros(0, int))):
        with pytest.raises(kvpipe.Invalid, match="at least one must"):
            call()


def test_200_entries_in_other_orders(two, name):
    """Entries of 1,700 bytes under a threshold of 170,000: full with 100 of them, always, until all are selected."""
    a, b, peer = two
    rng = random.Random(1)
    with a.lookup_buffer(name, capacity=170_000) as own, b.lookup_buffer(name, peer=peer) as sel:

        def put(i, timeout):
            own.insert(numpy.full(100, i), None, numpy.full(900, i % 256, numpy.uint8), None, None, timeout=timeout)

        def take(i):
            entry = sel.drop_select(numpy.full(100, i))
            assert entry[0].tolist() == [i] * 100 and entry[2].tolist() == [i % 256] * 900

        order = list(range(200))
        rng.shuffle(order)
        there = order[:100]
        for i in there:
            put(i, timeout=0)
        for i in order[100:]:
            with pytest.raises(kvpipe.Timeout, match="holds 170000 of 170000 bytes in 100 items"):
                put(i, timeout=0)
            take(there.pop(rng.randrange(100)))
            put(i, timeout=None)
            there.append(i)
        rng.shuffle(there)
        for i in there:
            take(i)


def test_every_query_at_once(ends):
    """200 queries wait before there is any entry; each gets its own, whatever the order."""
    own, sel = ends
    order = list(range(200))
    random.Random(3).shuffle(order)
    threads, results = in_threads(*[lambda i=i: sel.drop_select(ids(i, 1, 2)) for i in range(200)])
    for i in order:
        insert(own, i, ids(i, 1))
    for thread in threads:
        thread.join(60)
    assert [number(e) for e in results] == list(range(200)) and {e.matched for e in results} == {2}


def test_no_head_of_line_blocking(ends):
    own, sel = ends
    threads, results = in_threads(lambda: sel.drop_select(ids(1)))
    for i in range(2, 30):
        insert(own, i, ids(i))
        assert number(sel.drop_select(ids(i))) == i
    insert(own, 1, ids(1))
    threads[0].join(60)
    assert number(results[0]) == 1


def test_insert_waits_only_for_room(ends, name):
    """Nobody selects: as long as there is room no insert waits, and an entry that can never fit is told at once."""
    own, _ = ends
    for i in range(100):
        own.insert(ids(i), None, numpy.zeros(1000), None, None, timeout=0)
    with pytest.raises(kvpipe.Invalid, match='1048577 bytes, the capacity of .* is 1048576'):
        own.insert(None, None, numpy.zeros(1048577, numpy.uint8), None, None)


def test_put_and_get(ends):
    own, sel = ends
    threads, results = in_threads(lambda: sel.get("late"))
    own.put("k", numpy.arange(3))
    own.put(b"none", None)
    assert [sel.get("k").tolist() for _ in range(3)] == [[0, 1, 2]] * 3 and sel.get("none") is None
    own.put("k", numpy.arange(5))
    assert sel.get(b"k").tolist() == [0, 1, 2, 3, 4]
    own.put("late", numpy.array([7]))
    threads[0].join(60)
    assert results[0].tolist() == [7]
    with pytest.raises(kvpipe.Timeout):
        sel.drop_select(timeout=0.05)  # what lies under keys is not for queries
    with pytest.raises(kvpipe.Timeout):
        sel.get("nothing", timeout=0.05)


@pytest.mark.parametrize("ask, what", [("get", "nothing"), ("drop_select", None)])
def test_a_query_that_is_given_no_time_ends_by_itself(ends, monkeypatch, ask, what):
    """Not after the time of one that says nothing of it."""
    monkeypatch.setattr("kvpipe.lookup._GRACE_NS", 60 * 10**9)
    with pytest.raises(kvpipe.Timeout, match="within 1ms"):
        getattr(ends[1], ask)(what, timeout=0)


def test_a_put_that_the_daemon_refuses_fails(folder, name):
    """And the key keeps what it had."""
    daemon = Daemon(folder / "few", "few", folder / "ca", config="[limits]\nitems = 2\n")
    try:
        with kvpipe.connect(daemon.socket, engine_id="a") as node, node.lookup_buffer(name, capacity=1 << 20) as own, \
                node.lookup_buffer(name) as sel:
            own.put("a", numpy.array([1]))
            own.put("b", numpy.array([2]))
            with pytest.raises(kvpipe.Quota, match="limits.items = 2"):
                own.put("a", numpy.array([3]))
            assert sel.get("a").tolist() == [1]
    finally:
        daemon.stop()


def test_large_entries(ends):
    """Larger than what queries have room for: they are told the size, and ask again."""
    own, sel = ends
    for size in (10, 900_000, 10, 500_000, 1_000_000):
        value = numpy.random.default_rng(size).integers(0, 256, size, numpy.uint8)
        own.insert(ids(size), None, value, None, None)
        entry = sel.drop_select(ids(size))
        assert numpy.array_equal(entry[2], value)


def test_asyncio(ends):
    own, sel = ends

    async def main():
        waiting = [asyncio.ensure_future(sel.drop_select_async(ids(i))) for i in range(50)]
        got = asyncio.ensure_future(sel.get_async("k"))
        await asyncio.sleep(0)
        for i in reversed(range(50)):
            await own.insert_async(ids(i), None, None, numpy.array([i]), None)
        assert [number(e) for e in await asyncio.gather(*waiting)] == list(range(50))
        await own.put_async("k", numpy.array([9]))
        assert (await got).tolist() == [9]
        with pytest.raises(kvpipe.Timeout):
            await sel.drop_select_async(ids(5), timeout=0.05)

    asyncio.run(main())


def test_ends(two, name):
    a, b, peer = two
    with a.lookup_buffer(name, capacity=4096, token=b"0" * 16) as own:
        with pytest.raises(kvpipe.Busy):
            a.lookup_buffer(name, capacity=4096)
        insert(own, 1, ids(1))
        for wrong in (None, b"1" * 16):
            with pytest.raises(kvpipe.Denied), b.lookup_buffer(name, peer=peer, token=wrong) as sel:
                sel.drop_select(timeout=60)
        with b.lookup_buffer(name, peer=peer, token=b"0" * 16) as one, b.lookup_buffer(name, peer=peer, token=b"0" * 16) as other:
            threads, results = in_threads(lambda: one.drop_select(ids(7)), lambda: other.drop_select(ids(8)))
            assert number(one.drop_select()) == 1
            insert(own, 8, ids(8))
            threads[1].join(60)
            one.close()
            threads[0].join(60)
            assert number(results[1]) == 8 and isinstance(results[0], kvpipe.Closed)


def test_bad_arguments(near, name):
    with kvpipe.connect(near.socket, engine_id="a") as node:
        with pytest.raises(kvpipe.Invalid, match="capacity is 0"):
            node.lookup_buffer(name, capacity=0)
        with node.lookup_buffer(name, capacity=4096) as own, node.lookup_buffer(name) as sel:
            for error, call in [
                ("match is 'suffix'", lambda: sel.drop_select(ids(1), match="suffix")),
                ("owner's end", lambda: own.drop_select(ids(1))),
                ("selecting end", lambda: insert(sel, 1, ids(1))),
                ("tokens\\[1\\] is -2", lambda: insert(own, 1, ids(1, -2))),
                ("1 dimensions of float64", lambda: sel.drop_select(numpy.ones(3))),
                ("one for each of 2 tokens", lambda: sel.drop_select(ids(1, 2), numpy.array([True]))),
                ("roi without tokens", lambda: sel.drop_select(None, numpy.array([True]))),
                ("insert: value: dict is no tensor", lambda: own.insert(None, None, None, {}, None)),
                ("key is 5", lambda: own.put(5, None)),
                ("0 bytes", lambda: sel.get("")),
            ]:
                with pytest.raises(kvpipe.Invalid, match=error):
                    call()


def test_an_entry_that_its_framework_lacks_travels_with_the_error(ends, monkeypatch):
    """The buffer does not have it any more, so whoever handles the error does."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    own, sel = ends
    own.insert(ids(1, 2), None, kvpipe.RawTensor("bfloat16", (2,), b"abcd"), None, None)
    with pytest.raises(kvpipe.Unavailable, match="numpy has no bfloat16") as caught:
        sel.drop_select(ids(1, 2), framework="numpy")
    for error in in_other_hands(caught.value):
        assert type(error) is kvpipe.Unavailable and str(error) == str(caught.value) and error.completion is None
        entry, key = error.entry, error.entry[2]
        assert type(entry) is type(caught.value.entry) and entry.matched == 2 and entry == caught.value.entry
        assert type(key) is kvpipe.RawTensor and (key.dtype, key.shape, bytes(key.data)) == ("bfloat16", (2,), b"abcd")
        memoryview(key.data)[0] = 97  # as writable as what was received
    assert copy.copy(caught.value).entry is caught.value.entry


@pytest.mark.parametrize("call", ["drop_select", "drop_select_async", "get", "get_async"])
@pytest.mark.parametrize("where", ["waiting", "making the tensor"])
def test_an_interrupt_keeps_no_memory(ends, monkeypatch, where, call):
    """What came for the call goes back with it."""
    own, sel = ends
    insert(own, 7, ids(3))
    own.put("k", bytes(100))
    came, freed, free = [], [], sel._lib.msg_free

    def interrupted(*args):
        if made(*args) is not None and where == "waiting":  # it waits still
            return kvpipe.Timeout("")
        raise KeyboardInterrupt

    def look(query, ns, message, plain=sel._look):
        code = plain(query, ns, message)
        came.extend([message.value] if code == 0 else [])
        return code

    if where == "waiting":
        made = sel._try
        monkeypatch.setattr(sel, "_try", interrupted)
    else:
        made = kvpipe.received._MAKERS["raw"]
        monkeypatch.setitem(kvpipe.received._MAKERS, "raw", interrupted)
    monkeypatch.setattr(sel, "_look", look)
    monkeypatch.setattr(sel._lib, "msg_free", lambda m: (freed.append(getattr(m, "value", m)), free(m)))
    with pytest.raises(KeyboardInterrupt):
        got = getattr(sel, call)(*["k"] * call.startswith("get"), timeout=60, framework="raw")
        asyncio.run(got)
    gc.collect()
    assert len(came) == 1 and freed == came


@pytest.mark.parametrize("call", ["drop_select", "drop_select_async", "get", "get_async"])
def test_a_query_whose_end_comes_just_after_a_look(ends, monkeypatch, call):
    """The daemon's word that nothing came is Timeout, also when it comes between a look and the question whether the query runs still."""
    _, sel = ends
    done = sel._lib.query_done

    def late(query):
        while not done(query):
            pass
        return 1

    def ask():
        got = getattr(sel, call)(*["k"] * call.startswith("get"), timeout=0.6)
        asyncio.run(got)

    monkeypatch.setattr(sel._lib, "query_done", late)
    said = why_late(ask, 0.6)
    assert ('nothing is under the key "k" within' if call.startswith("get") else "no entry matched within") in said


@pytest.mark.parametrize("framework", ["numpy", "raw"])
def test_an_entry_travels(ends, framework):
    own, sel = ends
    insert(own, 7, ids(3))
    for entry in in_other_hands(sel.drop_select(ids(3), framework=framework)):
        assert entry.matched == 1 and entry[1] is entry[2] is entry[4] is None
        assert bytes(entry[3].data) == numpy.array([7]).tobytes()


def test_an_entry_of_the_whole_capacity(near, name):
    """Rounding of five tensors to where they begin costs no declared byte, at either end."""
    with kvpipe.connect(near.socket, engine_id="a") as node, node.lookup_buffer(name, capacity=100_000) as own, \
            node.lookup_buffer(name) as sel:
        parts = [numpy.full(n, n % 251, numpy.uint8) for n in (1, 65, 100_000 - 4 - 1 - 65)]
        for tokens in [[7], [8]]:
            own.insert(numpy.array(tokens, dtype=numpy.int32), None, *parts)
            got = sel.drop_select(numpy.array(tokens), framework="numpy")
            assert [len(p) for p in got[2:]] == [len(p) for p in parts]
            assert all((a == b).all() for a, b in zip(got[2:], parts))
        with pytest.raises(kvpipe.Invalid, match="the capacity of"):
            own.insert(numpy.array([9], dtype=numpy.int32), None, *parts[:2], numpy.zeros(99_931, numpy.uint8))
