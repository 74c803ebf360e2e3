"""Where the ranks of an engine are, as their workers say. Ranks on other nodes than the scheduler's take for themselves."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Optional, Set, Tuple

from .compat import logger, nodes_of
from .meta import Load, Place

#: why an engine hands nothing over when its ranks are on several nodes and it is not known which are where
UNKNOWN = "its ranks are on several nodes, and MultiConnector passes on what another connector says of them: name kvpipe before that"


class Ranks:
    """``world``: how many there are. ``apart``: rank on another node -> its part of a take. ``alone``: whether kvpipe is the only
    connector, by the word of all. ``unknown``: none has said where it is, and they may be on several nodes. ``refused``: why nothing is
    offered; "": it is. ``takes``: request -> what those elsewhere take for it."""

    def __init__(self, config: Any, here: str) -> None:
        self._here, self._tp = here, int(config.parallel_config.tensor_parallel_size)
        self.world = self._tp * int(config.parallel_config.pipeline_parallel_size)
        self._nodes = nodes_of(config)
        self.apart: Dict[int, int] = {}
        self.takes: Dict[str, Load] = {}
        self.unknown = self.alone = False
        self.refused = ""

    def placed(self, places: Dict[Tuple[int, int], Any]) -> List[Optional[str]]:
        """places: by (pp, tp); also what the workers of other connectors tell. Returns how each rank packs its blocks; None: it is not
        known."""
        ours = {rank: place for rank, place in places.items() if isinstance(place, Place)}
        apart = sorted(tp + pp * self._tp for (pp, tp), place in ours.items() if place.node != self._here)
        first = 0 if len(apart) == self.world else 1  # part 0 is of the ranks that are here, if there are any
        self.apart = {rank: i + first for i, rank in enumerate(apart)}
        self.alone = bool(ours) and all(place.alone for place in ours.values())
        self.unknown = not ours and self._nodes > 1
        if apart:
            self.refused = "its ranks are on several nodes"
            logger.warning("kvpipe: %d of %d ranks are on other nodes than the scheduler's, %s: this engine loads, but offers "
                           "nothing", len(apart), self.world, self._here)
        return [place.form for place in ours.values()] + [None] * (self.world - len(ours))

    def hit(self, bad: Set[int], failed: Collection[str]) -> List[str]:
        """Requests of which a part failed. bad: blocks that are not what they should be; failed: requests that are named as failed."""
        return [name for name, load in self.takes.items() if name in failed or not bad.isdisjoint(load.filled)]
