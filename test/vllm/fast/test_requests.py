"""What is read of a request."""

import types

import pytest

from kvpipe import NO_BLOCK
from kvpipe.vllm import requests


@pytest.mark.parametrize("name, header, trace", [
    ("r", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ("r", "00-" + "\x07\u00e9\ud800" * 100 + "-1-1", "\u00e9" * 32),
    ("a\nb\x00" + "x" * 100, "", "ab" + "x" * 62),
])
def test_a_trace_is_one_that_daemons_take(name, header, trace):
    assert requests.trace(types.SimpleNamespace(request_id=name, trace_headers={"traceparent": header})) == trace


def test_where_a_window_has_left_a_block_the_lists_have_none():
    """vLLM has its block 0 there, which is nobody's."""
    assert requests.Blocks([0, 1], [16, 32], 1).lists(([0, 0, 3, 4], [0, 9]), 16, 80) == [[NO_BLOCK, 3, 4, NO_BLOCK], [NO_BLOCK, 9, NO_BLOCK]]


@pytest.mark.parametrize("unit, ends", [(32, [0, 32, 32, 64]), (1, [0, 1, 32, 33])])
def test_lists_end_with_the_last_of_their_units(unit, ends):
    assert [requests.Blocks([0], [32], unit).end(tokens) for tokens in (0, 1, 32, 33)] == ends
