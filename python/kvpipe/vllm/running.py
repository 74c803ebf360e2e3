"""An offer or a take that runs, as the scheduler's side knows it."""

from __future__ import annotations

import logging
from typing import NamedTuple, Optional, Union

from .. import Completion, Offer, Status, Take
from .params import Source


class Running(NamedTuple):
    request: str
    operation: Union[Offer, Take]
    began: float
    source: Optional[Source]  # of takes
    blocks: int  # of offers to the next turn: how many they keep

    def loudness(self, c: Completion) -> int:
        """The log level of its end. A failed load costs a prefill, and a failed offer was for nothing. That one is withdrawn, cancelled or
        dropped, or was kept for a turn that did not come, is usual."""
        if c.status == Status.FAILED and not self.blocks:
            return logging.WARNING if isinstance(self.operation, Take) else logging.INFO
        return logging.DEBUG
