"""Requests that may load, until they have blocks: their producers hear that somebody will come."""

from __future__ import annotations

import time
from typing import Dict, NamedTuple

from .. import Completion, Node, Status
from . import bell
from .compat import logger
from .operations import Operations
from .params import Settings, Source

#: seconds that a node which counts as gone gets to answer for a request, and so show that it is back
_MOMENT = 0.1
#: seconds after which a producer hears again of a request, at the latest: its daemon may grant less than was asked for
#: (`offers.max_lease`), which nobody hears here, and a watch is one small message
_AGAIN = 3.0


class Known(NamedTuple):
    """A request that may load."""

    source: Source
    asked: float  # when its producer was last told of it
    asking: bool  # its producer is being told, and has not answered yet
    there: bool = False  # its producer has said that the KV is there, at least in part
    start: int = 0  # how many of its tokens the engine had when it last asked
    awaited: bool = False  # whether the engine was then told that the step waits for the load


class Waiting:
    """Called by the engine's thread alone. ``requests``: what each may load."""

    def __init__(self, node: Node, operations: Operations, settings: Settings) -> None:
        self._node, self._operations, self._settings = node, operations, settings
        self.requests: Dict[str, Known] = {}

    def add(self, request: str, source: Source) -> None:
        self._operations.wanted.put(request, source.key)
        self.requests[request] = self._watch(request, Known(source, 0, False))

    def engine_asked(self, request: str, start: int, awaited: bool) -> None:
        self.requests[request] = self.requests[request]._replace(start=start, awaited=awaited)

    def forget(self, key: str) -> None:
        """A request had the one load of this key, or tried: those that waited for that find the KV in the prefix cache, or compute it."""
        for request in [request for request, known in self.requests.items() if known.source.key == key]:
            self._operations.drop(self.requests.pop(request).source, request)

    def answered(self, request: str, milliseconds: int) -> bool:
        """Whether its producer has said that the KV is there, or says so within this time."""
        until = time.monotonic() + milliseconds / 1e3
        self._operations.listen()
        while request in self.requests and self.requests[request].asking and time.monotonic() < until:
            bell.sleep(self._node, 1)
            self._operations.listen()
        return request in self.requests and self.requests[request].there

    def fresh(self, known: Known) -> bool:
        """Whether its producer has hardly had the time to answer, and so to show that it is back."""
        return time.monotonic() < known.asked + _MOMENT

    def _watch(self, request: str, known: Known) -> Known:
        seconds = self._settings.timeout if known.source.early else self._settings.lease
        asking = self._operations.watch(known.source, seconds, lambda answer: self._hear(request, known.source, answer))
        return known._replace(asked=time.monotonic(), asking=asking)

    def renew(self) -> None:
        """Tells producers again. Called once a step."""
        if self.requests:
            late = time.monotonic() - min(self._settings.lease / 3, _AGAIN)
            for request, known in self.requests.items():
                if known.asked <= late and not known.asking:
                    self.requests[request] = self._watch(request, known)

    def _hear(self, request: str, asked: Source, answer: Completion) -> None:
        known = self.requests.get(request)
        if known is None or known.source != asked:  # another request may have its name by now
            return
        if answer.status == Status.DONE:
            self.requests[request] = known._replace(there=True, asking=False)
        else:
            del self.requests[request]
            self._operations.wanted.pop(request)
            logger.warning("kvpipe: request %s computes its prompt here: %s", request, answer.message)
