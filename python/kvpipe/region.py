"""Registered memory, as a Python buffer."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any, Optional

from . import _memory
from ._sleep import Sleeper
from .errors import Invalid, Quota, Unavailable

if TYPE_CHECKING:
    from ._session import Session

# Regions whose memory forked children do not get; also closed ones, while buffers refer to them.
_mapped: "weakref.WeakSet[Region]" = weakref.WeakSet()


def _unmapped(nbytes: int) -> int:
    """How many bytes munmap() of so many unmaps, in a mapping of small pages."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


class Region(Sleeper, mmap.mmap):
    """Memory that the daemon may read and write, from Node.alloc() or Node.register_fd().

    It is a context manager that closes it, and a writable buffer of ``nbytes`` bytes: ``memoryview(region)``,
    ``np.frombuffer(region, ...)``, ``torch.frombuffer(region, ...)``. Each of these keeps the memory mapped,
    past close() and past the end of the session. In a forked child they find zeros.

    - ``id``: names the region in a layout.
    - ``address``: where it begins in this process.
    - ``registered``: True until close().
    - ``valid``: False from invalidate() to revalidate(), while an engine sleeps.
    """

    id: int
    nbytes: int
    address: int
    _size: int
    _own: bool  # the pages are the region's, not a caller's
    _stays: bool  # in a child, where something else has part of the addresses: it is never unmapped
    _session: Optional["Session"]

    def __new__(cls, *args: Any, **kwargs: Any) -> "Region":
        raise TypeError("regions come from Node.alloc() and Node.register_fd()")

    def close(self, timeout: Optional[float] = None) -> None:
        """Takes the memory away from the daemon. Operations that use it are ended and fenced first.

        Waits for that at most ``timeout`` seconds (None: 5). Memory that other buffers still refer to stays
        mapped until the last of them goes.

        Raises Timeout: it may have begun, so that new operations are refused; call again. Raises Busy, or
        Unavailable (the daemon is away and not back in time): nothing has changed.
        """
        self._take_away(timeout)

    def __exit__(self, *_: object) -> None:
        self.close()  # mmap's own would unmap it, and leave it with the daemon

    def _give_back(self) -> None:
        if self._own:
            try:
                _memory.give_back(self.address, self._size)
            except OSError as error:
                raise Unavailable(
                    f"invalidate: the region is invalid, but its pages stay: {error.strerror}: locked memory (mlock, mlockall) does not go: "
                    "unlock it and call again"
                ) from None

    def _have_back(self) -> None:
        if self._own:
            try:
                _memory.populate(None, self.address, self._size)
            except OSError as error:
                raise Quota(f"revalidate: no memory for {self.nbytes} bytes: {error.strerror}") from None

    def _drop(self) -> None:
        """Unmaps now, or when the last buffer over it goes."""
        self._session = None
        if self._stays:
            return
        try:
            super().close()
        except BufferError:
            return
        self._unmap_rest()

    def _unmap_rest(self) -> None:
        # Huge pages go only whole, so the munmap() of nbytes did nothing. Small pages are gone: something else may be there by now.
        size, self._size = self._size, 0
        if size and size != _unmapped(self.nbytes):
            _memory.unmap(self.address, size)

    def _forked(self) -> None:
        """In a child: the memory is not here. Buffers over it find zeros, which are unmapped with the last of them."""
        self._session = None
        self._begin_valid()
        if self not in _mapped:  # this was done already
            return
        _mapped.discard(self)
        if self.closed or not self._size:
            return
        if _memory.zeros_in_gap(self.address, self._size):
            self._size = _unmapped(self.nbytes)
            return
        # The C library, Python or an earlier handler of the fork has put something there.
        self._stays, self._size = True, 0
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        _memory.zeros_around([(self.address, self.address + _unmapped(self.nbytes))])

    def __del__(self) -> None:
        if getattr(self, "_size", 0) and self._size != _unmapped(self.nbytes):
            self._drop()

    def resize(self, newsize: int) -> None:
        """Always raises TypeError: mmap's method would take memory away that the daemon has."""
        raise TypeError("a region cannot be resized: allocate another")


def create(session: "Session", fd: int, nbytes: int, size: int, *, fill: bool) -> Region:
    """Maps nbytes of fd, which has size bytes, and registers them. The descriptor stays the caller's."""
    try:
        region = mmap.mmap.__new__(Region, fd, nbytes)
    except (OSError, ValueError) as error:
        why = f"{'alloc' if fill else 'register_fd'}: {nbytes} bytes of fd {fd} cannot be mapped: {error}"
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # a shortage, not the caller's doing
            raise Quota(f"{why}: free memory, or files (ulimit -n)") from None
        raise Invalid(why) from None
    region.id, region.nbytes, region._size, region._session, region._own, region._stays = 0, nbytes, size, None, fill, False
    region._begin_valid()
    try:
        region.address = ctypes.addressof(ctypes.c_char.from_buffer(region))
        _mapped.add(region)
        _memory.keep_private(region.address, size)
        if fill:
            try:
                _memory.populate(fd, region.address, size)
            except OSError as error:
                raise Quota(f"alloc: no memory for {nbytes} bytes: {error.strerror}") from None
        number = ctypes.c_uint64()
        with session as handle, session.making(handle, number):
            session.lib.check(session.lib.mem_register_fd(handle, fd, nbytes, 0, ctypes.byref(number)))
            region.id = number.value
            region._session = session
            session.regions[region.id] = region
    except BaseException:
        region._drop()
        raise
    return region


def _after_fork() -> None:
    for region in list(_mapped):  # of whatever session, or of none any more
        region._forked()


os.register_at_fork(after_in_child=_after_fork)
