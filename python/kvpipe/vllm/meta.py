"""What the scheduler's connector tells the workers' with each step. Plain values: it is pickled once a step."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Tuple

#: phases of a step in progress values, step << 16 | phase
SAVED = 0xFFFF


def start_of(step: int) -> int:
    """Reached once all steps before this one are over: what is freed by then is no longer written."""
    return step << 16


def end_of(step: int) -> int:
    """Reached once the KV of this step is written."""
    return step << 16 | SAVED


@dataclasses.dataclass
class Step:
    """One step. Tags name operations in the completions of all sessions of the engine; they only grow."""

    #: its number, from 1 on
    number: int
    #: the last tag given out so far
    last: int = 0
    #: tag -> request, of offers and takes that began since the step before
    sends: Dict[int, str] = dataclasses.field(default_factory=dict)
    recvs: Dict[int, str] = dataclasses.field(default_factory=dict)
    #: (tag, done) of those that are over, and whose memory is free, as the scheduler's session has heard
    ended: List[Tuple[int, bool]] = dataclasses.field(default_factory=list)
    #: tags of offers whose blocks may be written again in this step: not before they are released
    fences: List[int] = dataclasses.field(default_factory=list)
