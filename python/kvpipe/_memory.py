"""Memory to share: a sealed memfd, of huge pages when there are any, present from the start.

The package maps it itself, because Python's buffers may outlive the session, while memory from kvpipe_mem_alloc() goes
with it.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import errno
import fcntl
import os
from typing import List, Optional, Sequence, Tuple

from .errors import Error, Invalid, Quota, Unavailable

_MFD_NOEXEC_SEAL = 0x0008
_SEALS = 0x0002 | 0x0004 | 0x0001  # F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL
_F_SEAL_FUTURE_WRITE = 0x0010
_MADV_REMOVE = 9
_MADV_DONTFORK = 10
_MADV_HUGEPAGE = 14
_MADV_DONTDUMP = 16
_MADV_POPULATE_WRITE = 23
_PROT_READ_WRITE = 1 | 2
_MAP_ZEROS = 0x02 | 0x20 | 0x4000  # MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
_MAP_FIXED_NOREPLACE = 0x100000
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]
_libc.mmap.restype = ctypes.c_void_p


def _memfd(flags: int) -> int:
    base = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags
    try:
        return os.memfd_create("kvpipe", base | _MFD_NOEXEC_SEAL)
    except OSError as error:  # before Linux 6.3
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("kvpipe", base)


def _make(nbytes: int, flags: int) -> Tuple[int, int]:
    fd = _memfd(flags)
    try:
        size = whole_pages(fd, nbytes)
        os.ftruncate(fd, size)
        if flags & os.MFD_HUGETLB:
            os.posix_fallocate(fd, 0, size)  # a shortage shows here, not as a signal later
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd, size


def whole_pages(fd: int, nbytes: int) -> int:
    """The length of a mapping of nbytes of a memfd. Not by st_blksize, which reflects transparent huge pages, too."""
    page = os.fstatvfs(fd).f_bsize  # of hugetlbfs: its huge pages
    return (nbytes + page - 1) // page * page


def judge(fd: int, nbytes: int) -> None:
    """Raises Invalid when the first nbytes of a caller's fd cannot be mapped. The library checks what else must be true of it."""
    held = os.fstat(fd).st_size
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise Invalid(
            f"register_fd: fd {fd} is not a memfd: make one by os.memfd_create(name, os.MFD_ALLOW_SEALING)"
        ) from None
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        raise Invalid(f"register_fd: fd {fd} must be open for reading and writing")
    if seals & (fcntl.F_SEAL_WRITE | _F_SEAL_FUTURE_WRITE):
        raise Invalid(f"register_fd: fd {fd} is sealed against writing: make another memfd, with F_SEAL_SHRINK alone")
    if nbytes > held:
        raise Invalid(
            f"register_fd: nbytes is {nbytes}, the memfd has {held} bytes: register at most those, or make it larger "
            "first (os.posix_fallocate)"
        )


def _forbidden(error: OSError) -> bool:
    return error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS)


def _no_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


def _no_huge_pages(error: OSError) -> bool:
    """Whether there are no huge pages, and it is not that something is missing, or forbidden by a sandbox, which small pages need as
    well. ENOSYS is what a kernel without huge pages says, but also one without memfd_create()."""
    if _no_files(error):
        return False
    if error.errno != errno.ENOSYS:
        return not _forbidden(error)
    try:
        os.close(_memfd(0))
    except OSError:
        return False
    return True


def _no_memory(error: OSError, nbytes: int) -> Error:
    if _forbidden(error):
        return Unavailable(
            f"alloc: no shared memory: {error.strerror}: allow memfd_create, fallocate and madvise in this process's "
            "sandbox (a container's seccomp profile)"
        )
    if _no_files(error):
        return Quota(f"alloc: no file for {nbytes} bytes: {error.strerror}: close some, or raise the limit (ulimit -n)")
    return Quota(f"alloc: no memory for {nbytes} bytes: {error.strerror}")


def create(nbytes: int, huge: Optional[bool]) -> Tuple[int, int]:
    """A memfd for nbytes: (fd, its size, whole pages). huge: True or an error, False never, None when there are any."""
    # Filling all memory would end in a killed process, not in an error. What cgroups allow is not known here.
    held = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if nbytes >= held:
        raise Quota(f"alloc: nbytes is {nbytes}: more than this machine's memory, {held}: ask for less")
    if huge is not False:
        try:
            return _make(nbytes, os.MFD_HUGETLB)
        except OSError as error:
            if huge and not _no_huge_pages(error):
                raise _no_memory(error, nbytes) from None
            if huge:
                raise Quota(
                    f"alloc: no huge pages for {nbytes} bytes: {error.strerror}: raise /proc/sys/vm/nr_hugepages, "
                    "or leave huge=True out"
                ) from None
    try:
        return _make(nbytes, 0)
    except OSError as error:
        raise _no_memory(error, nbytes) from None


def populate(fd: Optional[int], address: int, size: int) -> None:
    """Makes every page present; without fd, their contents may be lost. Raises OSError when memory runs out."""
    _libc.madvise(address, size, _MADV_HUGEPAGE)  # where shmem allows it
    if _libc.madvise(address, size, _MADV_POPULATE_WRITE) == 0:
        return
    code = ctypes.get_errno()
    if code != errno.EINVAL:
        code = errno.ENOMEM if code == errno.EFAULT else code  # the file has no page left
        raise OSError(code, os.strerror(code))
    if fd is None:  # before Linux 5.14
        ctypes.memset(address, 0, size)
    else:
        os.posix_fallocate(fd, 0, size)  # present, but mapped page by page


def give_back(address: int, size: int) -> None:
    """Gives every page back to the system; the mapping stays. Raises OSError when they do not go, as with locked memory."""
    if _libc.madvise(address, size, _MADV_REMOVE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def keep_private(address: int, size: int) -> None:
    """Keeps the memory out of core dumps and forked children."""
    for advice in (_MADV_DONTDUMP, _MADV_DONTFORK):
        _libc.madvise(address, size, advice)


def unmap(address: int, size: int) -> None:
    _libc.munmap(address, size)


def zeros_in_gap(address: int, size: int) -> bool:
    """In a forked child: puts zeros where the parent's memory was, so that buffers over it stay valid addresses. False: something is
    there by now, and stays as it is."""
    got = _libc.mmap(address, size, _PROT_READ_WRITE, _MAP_ZEROS | _MAP_FIXED_NOREPLACE, -1, 0)
    if got not in (None, _MAP_FAILED, address):  # before Linux 4.17
        unmap(got, size)
    return bool(got == address)


def zeros_around(places: Sequence[Tuple[int, int]]) -> None:
    """The same for what is free in places (from, to; in the order of addresses) that are taken in part."""
    with contextlib.suppress(OSError):  # without /proc, a child that reads there is killed
        for first, end in _gaps(places):
            zeros_in_gap(first, end - first)


def _gaps(places: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """The parts of the places in which nothing is mapped."""
    with open("/proc/self/maps", "rb") as maps:  # in the order of addresses
        there = [tuple(int(number, 16) for number in line.split(None, 1)[0].split(b"-")) for line in maps]
    stops = [stop for _, stop in there]
    out: List[Tuple[int, int]] = []
    for first, end in places:
        for start, stop in there[bisect.bisect_right(stops, first):]:
            if first < min(start, end):
                out.append((first, min(start, end)))
            first = max(first, stop)
            if first >= end:
                break
        if first < end:
            out.append((first, end))
    return out
