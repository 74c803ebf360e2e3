"""Waiting for what another process will do."""

import threading
import time


def eventually(look, timeout=180, every=0.05):
    """Returns the first true value of look(); fails with the last other one."""
    end, pause = time.monotonic() + timeout, threading.Event()
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < end, f"still {seen!r} after {timeout} s"
        pause.wait(every)


def becomes(look, wanted, timeout=180):
    """Waits until look() is what is wanted; fails with what it was last."""
    last = []

    def same():
        last[:] = [look()]
        return last[0] == wanted

    try:
        eventually(same, timeout)
    except AssertionError:
        raise AssertionError(f"{last[0]!r} after {timeout} s, not {wanted!r}") from None
