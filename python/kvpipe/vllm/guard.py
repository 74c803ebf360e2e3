"""What happens in a hook stays there."""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, TypeVar

from .. import Error
from .compat import logger

#: seconds for which a hook that goes on failing is not logged again: some are called a thousand times a second
_QUIET = 1.0
_F = TypeVar("_F", bound=Callable[..., Any])


def kept_in(otherwise: Callable[[], Any]) -> Callable[[_F], _F]:
    """The log has what a hook raises, and the engine gets the answer that asks for nothing."""

    def wrap(hook: _F) -> _F:
        quiet = float("-inf")  # until then

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


def told(hook: _F) -> _F:
    """For what the engine must not go on without: it gets the Error, in one line."""

    @functools.wraps(hook)
    def telling(*args: Any, **kw: Any) -> Any:
        try:
            return hook(*args, **kw)
        except Error as error:
            raise RuntimeError(f"kvpipe: {error}") from None

    return telling  # type: ignore[return-value]


def ask(end: Callable[..., Any]) -> bool:
    """Asks for an operation's end, or its seal, without waiting. False: it was refused, as of what is over already."""
    try:
        end(timeout=0)
    except Error as error:
        logger.debug("kvpipe: %s", error)
        return False
    return True


#: for hooks that return nothing
nothing = kept_in(lambda: None)
