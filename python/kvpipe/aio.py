"""Waiting in asyncio.

A listener asks the operations that tasks wait for, and takes no completions of others. What it has heard, poll() does not give again: it is
the same after wait().
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Optional

from ._ear import Ear
from .errors import Error, Timeout

if TYPE_CHECKING:
    from ._session import Session
    from .operation import Operation


class Listener(Ear):
    """One event loop's ear on one session; used in that loop's thread alone."""

    def __init__(self, session: "Session", loop: asyncio.AbstractEventLoop) -> None:
        #: operation -> how many tasks wait for it
        self.operations: "Counter[Operation]" = Counter()
        with session as handle:
            super().__init__(loop, session.lib.check(session.lib.fd(handle)))

    def _heard(self) -> None:
        for operation in list(self.operations):
            try:
                operation._look()  # settles it, which wakes its tasks
            except Error as error:
                operation._abandon(error)


def _waker(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[None]") -> None:
    def wake() -> None:
        if not future.done():
            future.set_result(None)

    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:  # the loop is closed: nobody waits there any more
        pass


async def wait(operation: "Operation", timeout: Optional[float]) -> None:
    """Returns when the operation has ended, or its session has; Timeout otherwise."""
    if operation._look() is not None:
        return
    session = operation._session
    loop = asyncio.get_running_loop()
    listener = session.listeners.get(loop)
    if listener is None:
        listener = session.listeners[loop] = Listener(session, loop)
    future: "asyncio.Future[None]" = loop.create_future()

    def wake() -> None:
        _waker(loop, future)

    operation._waiting.append(wake)
    listener.operations[operation] += 1
    try:
        if operation._look() is None:  # from here on its end is heard
            await asyncio.wait_for(future, timeout)
    except asyncio.TimeoutError:
        if operation._look() is None:
            raise Timeout(f"wait_async: {operation!r}: not within {timeout:g} s") from None
    finally:
        with contextlib.suppress(ValueError):  # another thread may be taking it
            operation._waiting.remove(wake)
        listener.operations[operation] -= 1
        listener.operations += Counter()  # drops what is 0
        if not listener.operations and session.listeners.get(loop) is listener:
            del session.listeners[loop]
            listener.close()
