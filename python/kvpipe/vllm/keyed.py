"""Which key each request has, and whether any request has a key."""

from __future__ import annotations

import collections
from typing import Dict, Optional


class Keyed:
    """Asked for each waiting request in each step, so an answer takes the same time however many requests there are."""

    def __init__(self) -> None:
        self._keys: Dict[str, str] = {}
        self._count: Dict[str, int] = collections.Counter()

    def put(self, request: str, key: str) -> None:
        self.pop(request)
        self._keys[request] = key
        self._count[key] += 1

    def pop(self, request: str) -> Optional[str]:
        """The request has none any more; returns which it had."""
        key = self._keys.pop(request, None)
        if key is not None:
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        return key

    def any(self, key: str) -> bool:
        """Whether a request has it."""
        return key in self._count
