"""Requests that may load, until they have blocks: their producers hear that somebody will come."""

from __future__ import annotations

import time
from typing import Dict, NamedTuple, Optional

from .. import Node
from .compat import logger
from .operations import Operations
from .params import Settings, Source


class _Request(NamedTuple):
    source: Source
    renew: float  # when its producer has to hear of it again
    asking: bool  # its producer hears of it now, or will; the answer is still to come
    there: bool = False  # its producer has said that it is, at least in part
    start: int = 0  # of its tokens, how many the engine had when it last asked


class Waiting:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, operations: Operations, settings: Settings) -> None:
        self._node, self._operations, self._settings = node, operations, settings
        self._requests: Dict[str, _Request] = {}

    def add(self, request: str, source: Source) -> None:
        self._requests[request] = self._watch(request, _Request(source, 0, False))

    def asked(self, request: str, computed: int) -> Optional[Source]:
        """What it may load, beyond ``computed`` tokens."""
        known = self._requests.get(request)
        if known is None:
            return None
        self._requests[request] = known._replace(start=computed)
        return known.source

    def start(self, request: str) -> int:
        """From which token on it loads."""
        return self._requests[request].start if request in self._requests else 0

    def there(self, request: str) -> bool:
        return self._requests[request].there

    def pop(self, request: str) -> Optional[Source]:
        known = self._requests.pop(request, None)
        return None if known is None else known.source

    def _watch(self, request: str, known: _Request) -> _Request:
        seconds = self._settings.timeout if known.source.early else self._settings.lease
        asking = self._operations.tell(self._node.watch, known.source, seconds, request)
        return known._replace(renew=time.monotonic() + self._settings.lease / 3, asking=asking)

    def renew(self) -> None:
        """Once a step."""
        if not self._requests and not self._operations.heard:
            return
        for request, there, why in self._operations.heard:
            if there and request in self._requests:
                self._requests[request] = self._requests[request]._replace(there=True, asking=False)
            elif self._requests.pop(request, None) is not None:
                logger.warning("kvpipe: request %s computes its prompt here: %s", request, why)
        self._operations.heard.clear()
        now = time.monotonic()
        for request, known in self._requests.items():
            if now >= known.renew and not known.asking:
                self._requests[request] = self._watch(request, known)
