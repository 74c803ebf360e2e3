"""Sleeping until a session has something to poll."""

from __future__ import annotations

import select

from .. import Node

#: milliseconds that a step which computes nothing waits for an end. The engine would come back at once, and take the cores of
#: who moves the bytes, where there are few
PAUSE = 1


def sleep(node: Node, milliseconds: int) -> None:
    """Returns when poll() may say something, or the time is over."""
    bell = select.poll()  # select() cannot take the descriptors of an engine that has thousands
    bell.register(node.fileno(), select.POLLIN)
    bell.poll(milliseconds)
