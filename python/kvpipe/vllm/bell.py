"""Sleeping until a session has something to poll."""

from __future__ import annotations

import select

from .. import Node

#: milliseconds that a step which computes nothing waits for the end of a load, or else of an offer. Otherwise the engine would
#: come back at once and, where cores are few, take them from whoever moves the bytes. A load of some megabytes ends within LOAD;
#: if the step missed it, it would be reported a whole round of the engine later. OFFER is shorter, as nobody waits for the end of
#: an offer, and the next prompt may come.
LOAD, OFFER = 3, 1


def sleep(node: Node, milliseconds: int) -> None:
    """Returns when poll() may say something, or the time is over."""
    bell = select.poll()  # select() cannot take the descriptors of an engine that has thousands
    bell.register(node.fileno(), select.POLLIN)
    bell.poll(milliseconds)
