"""A call in the middle of another that has failed, by a signal handler or a __del__: the other's error has its own words."""

import asyncio
import signal

import kvpipe
import pytest
from kvpipe._library import Library

TOKEN = b"0123456789abcdef"
LONG = "longer than 256 bytes"


@pytest.fixture
def between(monkeypatch):
    """between(call): has a signal handler make it, once, when the next call has failed and its words were not read yet."""
    pending, error = [], Library.error

    def reading(lib, code):
        if pending:
            signal.raise_signal(signal.SIGUSR1)
        return error(lib, code)

    before = signal.signal(signal.SIGUSR1, lambda *_: pending.pop()())
    monkeypatch.setattr(Library, "error", reading)
    yield pending.append
    signal.signal(signal.SIGUSR1, before)
    assert not pending, "nothing failed"


@pytest.fixture
def node(pair):
    return pair[1].node


@pytest.fixture
def never(node):
    return node.take("never", [1], token=TOKEN, tokens=16)


def fails(call, words):
    with pytest.raises(kvpipe.Error, match=words):
        call()


def looks(node, never):
    assert not never.done  # the library says that it still runs


def fails_too(node, never):
    fails(lambda: node.pipe("", "send"), "name is required")


def fails_to_connect(node, never):
    fails(lambda: kvpipe.connect("/nowhere", engine_id="e", timeout=0.01), "/nowhere")


def closes_an_end(node, never):
    with node.pipe("other", "send", capacity=4096) as tx:
        looks(node, never)
    fails(tx.flush, "other.*closed")


CALLS = [looks, fails_too, fails_to_connect, closes_an_end]


@pytest.mark.parametrize("inner", CALLS)
def test_a_pipe_ends_with_its_sender(node, never, between, name, inner):
    with node.pipe(name, "send", capacity=4096) as tx, node.pipe(name, "recv") as rx:
        tx.close()
        between(lambda: inner(node, never))
        assert list(rx) == []
        between(lambda: inner(node, never))

        async def main():
            return [tensor async for tensor in rx]

        assert asyncio.run(main()) == []


@pytest.mark.parametrize("inner", CALLS)
def test_words_of_a_refusal(node, never, between, inner):
    between(lambda: inner(node, never))
    fails(lambda: node.pipe("x" * 1000, "send"), LONG)


def test_several_in_between(node, never, between):
    """One after another, and one within another."""
    def handler():
        looks(node, never)
        between(lambda: looks(node, never))
        fails_too(node, never)
        looks(node, never)

    between(handler)
    fails(lambda: node.pipe("x" * 1000, "send"), LONG)
    fails_too(node, never)


def test_what_comes_before_a_call_fails(node, never):
    """Its words are newer."""
    session = node._session
    fails_too(node, never)
    with session as handle:
        looks(node, never)
        code = session.lib.offer_seal(handle, 12345678, 0)
        looks(node, never)
        assert "12345678" in str(session.lib.error(code))
    with session as handle:
        assert "12345678" in str(session.lib.error(session.lib.offer_seal(handle, 12345678, 0)))
