"""Sleeping until a session has something to poll."""

from __future__ import annotations

import select

from .. import Node

#: milliseconds that a step which computes nothing waits for the end of a load, or else of an offer. The engine would come back
#: at once, and take the cores of who moves the bytes, where there are few. A load of some megabytes ends within: missed by one
#: step, it is reported a whole round of the engine later. Nobody waits for the end of an offer, and the next prompt may come.
LOAD, OFFER = 3, 1


def sleep(node: Node, milliseconds: int) -> None:
    """Returns when poll() may say something, or the time is over."""
    bell = select.poll()  # select() cannot take the descriptors of an engine that has thousands
    bell.register(node.fileno(), select.POLLIN)
    bell.poll(milliseconds)
