"""Which other nodes answer: a load from one that does not would wait for its deadline."""

from __future__ import annotations

import time
from typing import Dict

from .. import Completion, Reason, Status
from .compat import logger

#: seconds for which a node counts as gone, unless it answers
_SILENCE = 30.0


class Silence:
    """Called by the engine's thread alone. here: this node, which is known to answer by other means."""

    def __init__(self, here: str) -> None:
        self._here = here
        self._heard: Dict[str, float] = {}  # other node -> when something of it went well
        self._until: Dict[str, float] = {}  # other node -> until when it counts as gone

    def of(self, node: str) -> bool:
        """Whether it counts as gone."""
        return time.monotonic() < self._until.get(node, 0)

    def answered(self, node: str, began: float, c: Completion) -> None:
        """c: the end of something that was asked of the node at began. If it timed out, the node is gone unless it was heard since."""
        now = time.monotonic()
        if c.status == Status.DONE:
            self._heard[node] = now
            self._until.pop(node, None)
        elif node != self._here and (
                c.reason == Reason.PEER_GONE or c.reason == Reason.TIMEOUT and self._heard.get(node, 0) < began):
            if not self.of(node):
                logger.warning("kvpipe: node %s, or an engine there, is gone: until it answers, prompts that it has are computed here", node)
            self._until[node] = now + _SILENCE
