"""What happens in a hook stays there."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

from .compat import logger

_F = TypeVar("_F", bound=Callable[..., Any])


def kept_in(otherwise: Callable[[], Any]) -> Callable[[_F], _F]:
    """The log has what a hook raises, and the engine gets the answer that asks for nothing."""

    def wrap(hook: _F) -> _F:
        @functools.wraps(hook)
        def kept(*args: Any, **kw: Any) -> Any:
            try:
                return hook(*args, **kw)
            except Exception:
                logger.exception("kvpipe: %s failed; the request is served without a hand-over", hook.__name__)
                return otherwise()

        return kept  # type: ignore[return-value]

    return wrap


#: for hooks that return nothing
nothing = kept_in(lambda: None)
