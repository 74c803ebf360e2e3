"""A call in the middle of another, by a signal handler or a __del__: what the other was about to read stays what it is."""

import gc
import signal

import kvpipe
import pytest
from engines import until
from kvpipe._library import library

TOKEN = b"0123456789abcdef"


def take(node, key, blocks):
    """One that fails, and its end has the key in its words, the blocks in its runs."""
    return node.take(key, blocks, token=b"not the offer's!", tokens=16 * len(blocks))


def tells(end, key, blocks):
    runs = tuple((0, first, first + 1) for first in blocks)
    assert f'key "{key}"' in end.message and end.failed == runs, end


@pytest.fixture
def node(pair):
    """A consumer's, with offers of which its takes have the wrong token."""
    producer, consumer = pair
    for key in "outer", "inner", "third":
        producer.node.offer(key, [1, 2, 3], tokens=48, token=TOKEN, consumers=9)
    return consumer.node


@pytest.fixture
def between(monkeypatch):
    """between(call): has a signal handler make it, once, when the next completion lies there and is not read yet."""
    pending, read = [], kvpipe.completion.read

    def reading(raw, op):
        if pending:
            signal.raise_signal(signal.SIGUSR1)
        return read(raw, op)

    before = signal.signal(signal.SIGUSR1, lambda *_: pending.pop()())
    monkeypatch.setattr(kvpipe.completion, "read", reading)
    yield pending.append
    signal.signal(signal.SIGUSR1, before)
    assert not pending, "no completion was read"


def waits(operation):
    with pytest.raises(kvpipe.Denied):
        operation.wait(60)


def polls(operation):
    until(lambda: any(end.op is operation for end in operation._node.poll()), "its completion")


def looks(operation):
    until(lambda: operation.done, "its end")


CALLS = [waits, polls, looks]


@pytest.mark.parametrize("inner", CALLS)
@pytest.mark.parametrize("outer", CALLS)
def test_both_ends_are_whole(node, between, outer, inner):
    def handler():
        within = take(node, "inner", [7, 9, 11])
        inner(within)
        tells(within.completion, "inner", [7, 9, 11])

    operation = take(node, "outer", [2, 4, 6])
    between(handler)
    outer(operation)
    tells(operation.completion, "outer", [2, 4, 6])


def test_those_of_one_poll(node, between):
    """The interrupted call has several, and another handler interrupts the first one's."""
    def handler():
        between(lambda: waits(take(node, "third", [30])))
        looks(take(node, "inner", [20, 22]))

    takes = [take(node, "outer", [i]) for i in range(8)]
    for operation in takes:
        operation.wait_released(60)  # all of them have ended
    between(handler)
    ends = node.poll()
    assert [end.op for end in ends if end.op in takes] == takes
    for i, end in enumerate(ends[:8]):
        tells(end, "outer", [i])


@pytest.mark.parametrize("call", [
    pytest.param(lambda node: take(node, "third", [30]).cancel(60), id="cancel"),
    pytest.param(lambda node: node.offer("own", [30], tokens=16).withdraw(60), id="withdraw"),
    pytest.param(lambda node: take(node, "third", [30]).wait_released(60), id="wait_released"),
])
def test_other_calls(node, between, call):
    def handler():
        call(node)
        waits(take(node, "inner", [20, 22, 24]))

    operation = take(node, "outer", [2, 4, 6])
    between(handler)
    waits(operation)
    tells(operation.completion, "outer", [2, 4, 6])


@pytest.mark.parametrize("held", [True, False])
def test_a_poll_as_an_operation_is_submitted(node, monkeypatch, held):
    """It gives out the end of an operation that the program does not hold yet. That is forgotten when the program lets go of it, not before."""
    plain, ends = library().take, []

    def polls_then(*args):
        code = plain(*args)
        until(lambda: ends.extend(node.poll()) or ends, "its completion")
        return code

    with monkeypatch.context() as patch:
        patch.setattr(library(), "take", polls_then)
        operation = take(node, "outer", [2, 4, 6])
    assert [end.op for end in ends] == [None]
    if held:
        waits(operation)
        tells(operation.completion, "outer", [2, 4, 6])
        gc.collect()  # the error that waits() has seen refers to it
    number = operation._id
    del operation
    node.poll()
    with node._session as handle:
        assert library().op_released(handle, number) == -kvpipe.Reason.NOT_FOUND


@pytest.mark.parametrize("meanwhile", [True, False])
def test_what_is_released_after_its_end_was_polled_as_it_was_submitted(node, near, monkeypatch, meanwhile):
    """By a daemon that stood still: a poll gives out the end of an operation that the program does not hold yet, and the same or a later one
    its RELEASED. It is forgotten like others."""
    plain, ends = library().take, []

    def gives(status):
        until(lambda: ends.extend(node.poll()) or any(end.status == status for end in ends), f"its {status.name}")

    def polls_then(*args):
        near.freeze()
        code = plain(*args)
        gives(kvpipe.Status.FAILED)
        if meanwhile:
            near.process.send_signal(signal.SIGCONT)
            gives(kvpipe.Status.RELEASED)
        return code

    try:
        with monkeypatch.context() as patch:
            patch.setattr(library(), "take", polls_then)
            operation = node.take("late", [2, 4, 6], token=TOKEN, tokens=48, timeout=0.05)
    finally:
        near.process.send_signal(signal.SIGCONT)
    gives(kvpipe.Status.RELEASED)
    number = operation._id
    ends.clear()  # they may refer to it
    del operation
    node.poll()
    with node._session as handle:
        assert library().op_released(handle, number) == -kvpipe.Reason.NOT_FOUND
