"""Closed objects: each public method says so with an error of the package, at once, or does what it may without the session."""

import asyncio
import inspect
import mmap

import kvpipe
import pytest
from caches import Cache

TOKEN = b"0123456789abcdef"
BLOCKS = {"key": "k", "blocks": [0], "tokens": 16, "token": TOKEN}
KEY = {"key": "k", "peer": None, "token": TOKEN}
ENTRY = dict.fromkeys(("tokens", "roi", "key", "value", "hidden"))
# What a method needs; one that is not here is called without anything.
ARGUMENTS = {
    "alloc": {"nbytes": 4096}, "register_fd": {"fd": 0, "nbytes": 4096}, "adopt": {"memory": bytearray(4096)}, "set_layout": {"views": []},
    "progress": {"n": 1}, "pipe": {"name": "p", "end": "send"}, "lookup_buffer": {"name": "b"}, "offer": BLOCKS, "take": BLOCKS,
    "watch": KEY, "drop": KEY, "extend": {"blocks": [1], "tokens": 32}, "wait_layer": {"layer": 0}, "send_tensor": {"tensor": b"abc"},
    "send_tensor_async": {"tensor": b"abc"}, "insert": ENTRY, "insert_async": ENTRY, "put": {"key": "k", "value": None},
    "put_async": {"key": "k", "value": None}, "get": {"key": "k"}, "get_async": {"key": "k"},
}
# What has an answer without the session.
ANSWERS = {"close", "closed", "connected", "registered", "valid", "key", "token", "tokens", "name", "instance", "advertise", "id", "nbytes",
           "address", "memory", "end", "released", "wait_released"}
# register_fd() looks at the descriptor before it asks anybody.
ERRORS = {"register_fd": kvpipe.Error}


def calls(thing):
    """(name, call) of everything public that the package gives an object; what a region has from mmap is Python's."""
    for name in sorted(set(dir(type(thing))) | set(vars(thing))):
        if name.startswith("_") or (isinstance(thing, mmap.mmap) and name not in dir(kvpipe.AdoptedRegion)):
            continue

        def call(name=name):
            value = getattr(thing, name)
            if callable(value):
                value = value(**ARGUMENTS.get(name, {}))
            if inspect.isawaitable(value):
                value = asyncio.run(asyncio.wait_for(value, 60))
            return value

        yield name, call


def check(thing):
    refused = 0
    for name, call in calls(thing):
        if name in ANSWERS:
            call()
            continue
        with pytest.raises(ERRORS.get(name, kvpipe.Closed)):
            call()
            pytest.fail(f"{type(thing).__name__}.{name}() returned")
        refused += 1
    assert repr(thing) and refused


@pytest.fixture
def things(near, name):
    """One of everything, of a session that is open."""
    with Cache(near.socket, "closed") as cache:
        node = cache.node
        pipe, receiving = node.pipe(name, "send", capacity=4096), node.pipe(name, "recv")
        with pipe, receiving, node.lookup_buffer(name, capacity=4096) as own, node.lookup_buffer(name) as selecting:
            yield {
                "node": node, "region": cache.region, "offer": node.offer("k", [0], tokens=16, sealed=False),
                "take": node.take("none", [1], tokens=16, token=TOKEN),
                "layered": node.take("none", [2], tokens=16, token=TOKEN, layered=True),
                "watch": node.watch("none", None, TOKEN), "sender": pipe, "receiver": receiving, "owner": own, "selecting": selecting,
            }


@pytest.mark.parametrize("which", ["node", "region", "offer", "take", "layered", "watch", "sender", "receiver", "owner", "selecting"])
def test_of_a_closed_session(things, which):
    things["node"].close()
    check(things[which])


@pytest.mark.parametrize("which", ["sender", "receiver", "owner", "selecting", "region"])
def test_closed_by_itself(things, which):
    things[which].close()
    check(things[which])
    assert things["node"].connected


@pytest.mark.parametrize("how", ["pipe", "node"])
@pytest.mark.parametrize("which", ["sender", "receiver"])
def test_a_closed_pipe_does_not_look_complete(things, which, how):
    things[which if how == "pipe" else "node"].close()
    with pytest.raises(kvpipe.Closed):
        list(things[which])
