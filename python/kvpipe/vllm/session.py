"""Opening a session at the engine's start: the only time that anything here waits for a daemon."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from .. import Busy, Error, Node, Unavailable, connect
from .._library import library
from .compat import groups, logger, nodes_of
from .guard import passed_on
from .params import Settings

_AGAIN = 0.25


def instance(config: Any, worker: bool) -> Optional[str]:
    """Names this start of the engine, in all of its processes; None: vLLM does not. Where its ranks are on several nodes, vLLM makes up
    a name on each: all workers then have rank 0's, which is on the scheduler's node. All must call this, as they wait for each other."""
    name: Optional[str] = getattr(config, "instance_id", None) or None
    for group in groups() if worker and nodes_of(config) > 1 else ():
        name = group.broadcast_object(name, src=0)
    return name


@passed_on
def open_session(settings: Settings, engine: str, instance: Optional[str], **options: Any) -> Node:
    """Waits for the daemon at most ``connect_timeout``. Raises RuntimeError, in one line that says what to do."""
    library()  # a missing library will not come, as a daemon may
    until, warned = time.monotonic() + settings.connect_timeout, False
    while True:
        left = until - time.monotonic()
        try:
            return connect(settings.socket or None, engine_id=engine, instance=instance, timeout=max(left, _AGAIN), **options)
        except (Unavailable, Busy) as error:  # the daemon may be about to start, or an earlier process about to go
            if left <= 0:
                raise RuntimeError(_advice(error)) from None
            if not warned:
                logger.warning("kvpipe: %s (waiting for up to %.0f s)", error, left)
            warned = True
        threading.Event().wait(min(_AGAIN, max(left, 0)))


def _advice(error: Error) -> str:
    what = str(error)
    if what.startswith("no daemon at "):  # capi/dial.c
        what = what.split(": ")[0] + ': mount that directory into the pod or start "kvpiped --dev"; then run "kvpipectl doctor"'
    return f"kvpipe: {what}"
