"""Keeps what a hook raises from the engine."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any, Callable, Iterator, TypeVar

from .. import Error, Take, Timeout
from .compat import logger

#: seconds for which a hook that goes on failing is not logged again: some are called a thousand times a second
_QUIET = 1.0
#: seconds after which it is said that the engine waits for the daemon to let go of blocks
SAID = 10.0
_F = TypeVar("_F", bound=Callable[..., Any])


def kept_in(otherwise: Callable[[], Any]) -> Callable[[_F], _F]:
    """Logs what a hook raises, and gives the engine the answer that asks for nothing."""

    def wrap(hook: _F) -> _F:
        quiet = float("-inf")  # nothing is logged until then

        @functools.wraps(hook)
        def kept(*args: Any, **kw: Any) -> Any:
            nonlocal quiet
            try:
                return hook(*args, **kw)
            except Exception:
                now = time.monotonic()
                if now >= quiet:
                    quiet = now + _QUIET
                    logger.exception("kvpipe: %s failed; the request is served without a hand-over", hook.__name__)
                return otherwise()

        return kept  # type: ignore[return-value]

    return wrap


@contextlib.contextmanager
def going_on(where: str) -> Iterator[None]:
    """Logs what is raised; the hook goes on with what comes after."""
    try:
        yield
    except Exception:
        logger.exception("kvpipe: %s", where)


def passed_on(hook: _F) -> _F:
    """For hooks without which the engine must not go on: it gets their Error, as a RuntimeError of one line."""

    @functools.wraps(hook)
    def telling(*args: Any, **kw: Any) -> Any:
        try:
            return hook(*args, **kw)
        except Error as error:
            raise RuntimeError(f"kvpipe: {error}") from None

    return telling  # type: ignore[return-value]


def ask(end: Callable[..., Any]) -> bool:
    """Asks for an operation's end, or its seal, without waiting. False: refused, as when the operation is over already."""
    try:
        end(timeout=0)
    except Error as error:
        logger.debug("kvpipe: %s", error)
        return False
    return True


def released(take: Take, request: str) -> None:
    """Waits, however long it takes, until a take that was asked to end touches memory no more."""
    while True:
        try:
            take.wait_released(SAID)
            return
        except Timeout:
            logger.error("kvpipe: request %s: the daemon does not let go of the blocks: the engine waits until it does, or is ended, for "
                         "what it still moves would overwrite what is computed", request)
        except Error as error:  # the session is over: nothing of it touches memory any more
            logger.error("kvpipe: request %s: %s", request, error)
            return


#: for hooks that return nothing
nothing = kept_in(lambda: None)
