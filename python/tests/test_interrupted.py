"""A signal that comes while a call waits for the daemon has its handler called as the library's function returns: what that has opened or
made must not be left to nobody."""

import kvpipe
import numpy
import pytest
from caches import BLOCK_SIZE, Cache
from kvpipe._library import library


@pytest.fixture
def node(near):
    with kvpipe.connect(near.socket, engine_id="interrupted") as node:
        yield node


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupts a call as that function of the library returns."""

    def run(function, call):
        plain = getattr(library(), function)

        def then_raise(*args):
            assert (plain(*args) or 0) >= 0
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(library(), function, then_raise)
            with pytest.raises(KeyboardInterrupt):
                call()

    return run


def test_connecting(near, interrupted):
    """The rank would have a session for as long as the process lives."""

    def connect():
        return kvpipe.connect(near.socket, engine_id="interrupted")

    interrupted("connect", connect)
    assert not [s for s in near.ask("sessions") if s["engine"] == "interrupted"]
    connect().close()


OPEN = {
    "pipe_open": [lambda node: node.pipe("interrupted", "send"), lambda node: node.pipe("interrupted", "recv")],
    "lookup_open": [lambda node: node.lookup_buffer("interrupted", capacity=4096)],
}


@pytest.mark.parametrize("function, open_end", [(f, call) for f, calls in OPEN.items() for call in calls], ids=["send", "recv", "lookup buffer"])
def test_opening_an_end(node, interrupted, function, open_end):
    """The name would have that end until its node is closed."""
    interrupted(function, lambda: open_end(node))
    open_end(node).close()


MEMORY = {"mem_register_fd": lambda node, array: node.alloc(array.nbytes), "mem_adopt": lambda node, array: node.adopt(array)}


def room():
    return numpy.zeros(40 << 20, numpy.uint8)


@pytest.mark.parametrize("function, make", MEMORY.items(), ids=MEMORY)
def test_making_a_region(near, node, interrupted, function, make):
    """It would count against the daemon's limits, and what is adopted could not be adopted again."""
    array = room()
    interrupted(function, lambda: make(node, array))
    assert [s["regions"] for s in near.ask("sessions") if s["engine"] == "interrupted"] == [0]
    make(node, array).close()


@pytest.mark.parametrize("make", MEMORY.values(), ids=MEMORY)
def test_closing_a_region(node, interrupted, make):
    """Who calls again ends what the first call has begun."""
    region = make(node, room())
    interrupted("mem_unregister", region.close)
    region.close()
    assert not region.registered


def test_extending(near, interrupted):
    """The offer may have the new blocks: who goes on from where it was is told so."""
    with Cache(near.socket, "interrupted") as cache:
        offer = cache.node.offer("interrupted", [0], tokens=BLOCK_SIZE, sealed=False)
        with pytest.raises(kvpipe.Invalid, match="need 2"):  # a refusal leaves it as it was
            offer.extend([1], 3 * BLOCK_SIZE)
        interrupted("offer_extend", lambda: offer.extend([1], 2 * BLOCK_SIZE))
        with pytest.raises(kvpipe.Invalid, match=r"was interrupted, and may be part of the offer or not: withdraw\(\) it"):
            offer.extend([1], 2 * BLOCK_SIZE)
        assert offer.withdraw()


def test_offering_and_taking(pair, interrupted):
    """The key and the blocks would be held by what nobody can withdraw or cancel."""
    producer, consumer = pair
    for function in ("offer", "offer_token"):
        interrupted(function, lambda: producer.node.offer("interrupted", [0], tokens=BLOCK_SIZE))
    offer = producer.node.offer("interrupted", [0], tokens=BLOCK_SIZE, sealed=False)
    offer.seal()  # the daemon has heard that the others are withdrawn
    interrupted("take", lambda: consumer.node.take("another", [0], token=offer.token, tokens=BLOCK_SIZE))
    assert consumer.node.take("interrupted", [0], token=offer.token, tokens=BLOCK_SIZE).wait().bytes > 0
    offer.wait()
