"""Lets an event loop listen to one of the library's descriptors.

The descriptor stays readable while anything is there, perhaps for another task. So an ear hears only its edges, through an epoll of
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import select


class Ear:
    """Used in its loop's thread alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        """fd: must not be closed meanwhile."""
        self._loop = loop
        self._epoll = select.epoll()
        try:
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
            loop.add_reader(self._epoll.fileno(), self._ready)
        except BaseException:
            self._epoll.close()
            raise

    def _ready(self) -> None:
        self._epoll.poll(0)
        self._heard()

    def _heard(self) -> None:
        """There was an edge."""
        raise NotImplementedError

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed before its tasks ended
            self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
