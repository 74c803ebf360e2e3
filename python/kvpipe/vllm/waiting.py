"""Requests that may load, until they have blocks: their producers hear that somebody will come."""

from __future__ import annotations

import time
from typing import Dict, NamedTuple

from .. import Node
from . import bell
from .compat import logger
from .operations import Operations
from .params import Settings, Source


class Known(NamedTuple):
    """A request that may load."""

    source: Source
    renew: float  # when its producer has to hear of it again
    asking: bool  # its producer hears of it now, or will; the answer is still to come
    there: bool = False  # its producer has said that it is, at least in part
    start: int = 0  # of its tokens, how many the engine had when it last asked; ...
    awaited: bool = False  # ... and whether it heard that its step waits for the load


class Waiting:
    """Called by the engine's thread alone. ``requests``: what each may load."""

    def __init__(self, node: Node, operations: Operations, settings: Settings) -> None:
        self._node, self._operations, self._settings = node, operations, settings
        self.requests: Dict[str, Known] = {}

    def add(self, request: str, source: Source) -> None:
        self.requests[request] = self._watch(request, Known(source, 0, False))

    def told(self, request: str, start: int, awaited: bool) -> None:
        self.requests[request] = self.requests[request]._replace(start=start, awaited=awaited)

    def answered(self, request: str, milliseconds: int) -> bool:
        """Whether its producer has said that it is there, or says so within this time."""
        until = time.monotonic() + milliseconds / 1e3
        while self._asking(request):
            self._operations.listen()
            self._hear()
            if not self._asking(request) or time.monotonic() >= until:
                break
            bell.sleep(self._node, 1)
        return request in self.requests and self.requests[request].there

    def _asking(self, request: str) -> bool:
        return request in self.requests and self.requests[request].asking

    def _watch(self, request: str, known: Known) -> Known:
        seconds = self._settings.timeout if known.source.early else self._settings.lease
        asking = self._operations.tell(self._node.watch, known.source, seconds, request)
        return known._replace(renew=time.monotonic() + self._settings.lease / 3, asking=asking)

    def renew(self) -> None:
        """Once a step."""
        if self._operations.heard:
            self._hear()
        if self.requests:
            now = time.monotonic()
            for request, known in self.requests.items():
                if now >= known.renew and not known.asking:
                    self.requests[request] = self._watch(request, known)

    def _hear(self) -> None:
        for request, there, why in self._operations.heard:
            if there and request in self.requests:
                self.requests[request] = self.requests[request]._replace(there=True, asking=False)
            elif self.requests.pop(request, None) is not None:
                logger.warning("kvpipe: request %s computes its prompt here: %s", request, why)
        self._operations.heard.clear()
