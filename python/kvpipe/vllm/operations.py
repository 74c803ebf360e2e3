"""The offers and takes of the scheduler's session, by tag. Hooks must not wait: they submit here, and each step looks once at
what has ended. Only a step that writes blocks of an offer waits until nothing reads them."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union

from .. import Busy, Completion, Error, Node, Offer, Status, Take
from . import bell
from .compat import logger
from .guard import SAID
from .keyed import Keyed
from .meta import Load
from .params import Source
from .running import Running
from .silence import Silence
from .stats import Counts
from .stopping import Stopping
from .submissions import Submissions
from .whole import Whole

#: a daemon that is away for longer than this does not keep takes waiting; one that is restarted is back by then
_PATIENCE = 3.0


class Operations:
    """Called by the engine's thread alone."""

    def __init__(self, node: Node, counts: Counts, met: Callable[[str, float], None], lease: float) -> None:
        self.node = node
        self.running: Dict[int, Running] = {}
        self._counts, self._met, self._lease = counts, met, lease
        self._watches: Dict[int, Tuple[str, float, Callable[[Completion], None]]] = {}  # tag -> node, when it began, who hears
        self.wanted = Keyed()  # request -> the key of what it may load, loads or has loaded, until it needs nothing of it
        self.submissions = Submissions()
        self._stopping = Stopping(self.running, self.submissions)
        self.silence = Silence(node.name)
        self.whole = Whole(counts, met)
        self.last = 0  # of the tags given out
        self._ended: List[Tuple[int, bool]] = []
        self._away: Optional[float] = None  # since when
        self._over = False  # the session is over
        self._given_up = False  # this session is over, or another of this engine's

    def tag(self) -> int:
        self.last += 1
        return self.last

    @property
    def usable(self) -> bool:
        """Whether anything can be handed over now."""
        return not self._given_up and self.node.connected and not self.submissions.stopped

    def end(self, why: object) -> None:
        """Nothing new is begun from now on; what runs ends by itself."""
        if not self._given_up:
            logger.error("kvpipe: no more hand-overs until this engine is restarted: %s", why)
        self._given_up = True

    def submit(self, call: Callable[..., Any], *args: Any, **options: Any) -> Optional[Any]:
        """The operation, or None when it was refused at once."""
        if self._over:
            return None
        try:
            return self.submissions.make(call, *args, **options)
        except Busy:  # which has been said
            return None
        except Error as error:
            logger.warning("kvpipe: %s", error)
            return None

    def keep(self, tag: int, request: str, operation: Union[Offer, Take], source: Optional[Source] = None, blocks: int = 0) -> None:
        self.running[tag] = Running(request, operation, time.monotonic(), source, blocks)

    def watch(self, source: Source, seconds: float, heard: Callable[[Completion], None]) -> bool:
        """Tells the producer that somebody will come. Returns whether heard() will be called, with the answer."""
        tag = self._tell(self.node.watch, source, seconds)
        if tag:
            self._watches[tag] = source.node, time.monotonic(), heard
        return bool(tag)

    def drop(self, source: Union[Source, Load], request: str) -> None:
        """The request needs nothing of source: the producer's blocks may go, unless another request wants them or computes on them."""
        self.wanted.pop(request)
        if not self.wanted.any(source.key):
            self._tell(self.node.drop, source, self._lease)

    def _tell(self, what: Callable[..., Any], source: Union[Source, Load], seconds: float) -> int:
        """The tag under which the answer comes; 0: it was refused at once."""
        tag = self.tag()
        told = self.submit(what, source.key, source.node, source.token, timeout=seconds, tag=tag, trace=source.trace)
        return tag if told is not None else 0

    def failed(self, tag: int) -> None:
        """A take that could not be submitted: the workers, who know the tag, are told with the next step."""
        self._counts.refused()
        self._ended.append((tag, False))

    def stop(self, tag: int) -> None:
        """Asks one to end, once, without waiting: its completion still comes. A daemon that stands still is asked once it goes on."""
        self._stopping.stop(tag)

    def wait_over(self, tags: Set[int]) -> None:
        """Ends these, and waits, however long it takes, until nothing of them touches memory any more."""
        said = time.monotonic() + SAID
        while left := tags & self.running.keys():
            for tag in left:
                self.stop(tag)
            self.listen()
            if tags & self.running.keys():
                bell.sleep(self.node, 100)
            if time.monotonic() > said:
                said += SAID
                logger.error("kvpipe: the daemon does not let go of blocks of %d preempted requests: the engine waits until it does, or "
                             "is ended, for what it still reads would not be what was computed", len(left))

    def stop_load(self, request: str) -> None:
        """The request is gone: whatever still lands in its blocks is for nobody."""
        self.wanted.pop(request)
        for tag in [tag for tag, r in self.running.items() if r.request == request and isinstance(r.operation, Take)]:
            self.stop(tag)

    def collect(self) -> List[Tuple[int, bool]]:
        """(tag, done) of what has ended since the last call, and whose memory is free."""
        if self.running or self._watches:  # other ends concern nobody, and wait in the ring
            self.listen()
        ended, self._ended = self._ended, []
        return ended

    def listen(self) -> None:
        try:
            for c in self.node.poll():
                try:
                    self._hear(c)
                except Error:
                    raise
                except Exception:  # those behind it are heard all the same: they do not come again
                    logger.exception("kvpipe: the end of operation %d", c.tag)
            self._stopping.again()
            if self.running:
                self._look_out()
        except Error as error:  # the session is over: nothing of it touches memory any more
            self.end(error)
            self._over = True
            self._ended += [(tag, False) for tag in self.running]
            self.running.clear()
            self._watches.clear()
            self._stopping.clear()
            self.whole.clear()

    def _hear(self, c: Completion) -> None:
        running = self.running.get(c.tag)
        if running is None:
            if c.tag in self._watches and c.terminal:
                node, began, heard = self._watches.pop(c.tag)
                self.silence.answered(node, began, c)
                heard(c)
            return
        try:
            if c.terminal:
                self._over_with(c, running)
        finally:
            if c.released:
                end = running.operation.completion
                self._ended.append((c.tag, end is not None and end.status == Status.DONE))
                del self.running[c.tag]
                self._stopping.over(c.tag)

    def _over_with(self, c: Completion, running: Running) -> None:
        seconds = time.monotonic() - running.began
        apart = running.source is not None and self.whole.ended_here(running.request, c, seconds)
        if not apart:
            self._counts.ended(isinstance(running.operation, Take), c, seconds)
        if c.status != Status.DONE:
            logger.log(running.loudness(c), "kvpipe: request %s: %s", running.request, c.message)
        if running.source is not None:
            self.silence.answered(running.source.node, 0, c)  # 0: one that timed out may just have been too slow
            if c.status == Status.DONE and not apart:
                self._met(running.source.node, c.bytes / max(seconds, 1e-6))
            elif c.status != Status.DONE:
                self.drop(running.source, running.request)

    def _look_out(self) -> None:
        if self.node.connected:
            self._away = None
            return
        now = time.monotonic()
        if self._away is None:
            self._away = now
        elif now - self._away > _PATIENCE:
            late = [tag for tag, r in self.running.items() if isinstance(r.operation, Take) and tag not in self._stopping]
            if late:
                logger.warning("kvpipe: the daemon has been away for %.0f s: %d loads are given up", now - self._away, len(late))
            for tag in late:
                self.stop(tag)
