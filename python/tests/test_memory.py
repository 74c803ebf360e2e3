"""Regions are buffers, and stay valid whatever is closed first."""

import ctypes
import errno
import fcntl
import gc
import os
import pathlib
import re
import resource

import kvpipe
import pytest
from caches import Cache, view
from engines import until

numpy = pytest.importorskip("numpy")


@pytest.fixture
def node(near):
    with kvpipe.connect(near.socket, engine_id="memory") as node:
        yield node


def test_buffer(node):
    region = node.alloc(3 * 4096 + 100)
    memory = memoryview(region)
    assert (memory.nbytes, memory.format, memory.readonly, memory.ndim) == (3 * 4096 + 100, "B", False, 1)
    assert len(region) == region.nbytes == 3 * 4096 + 100
    memory[4096] = 7
    words = numpy.frombuffer(region, numpy.uint8)
    words[4097] = 8
    assert region[4096:4098] == b"\x07\x08" and words.ctypes.data == region.address
    assert ctypes.c_char.from_address(region.address + 4096).value == b"\x07"
    assert "Region" in repr(region) and region.registered
    del memory, words
    region.close()
    assert region.closed and not region.registered
    region.close()


def test_memory_is_there_from_the_start(node):
    region = node.alloc(1 << 20, huge=False)
    smaps = pathlib.Path("/proc/self/smaps").read_text().split(f"{region.address:x}-")[1]
    fields = {}
    for line in smaps.splitlines()[1:]:
        name, _, value = line.partition(":")
        fields.setdefault(name, value)
    assert fields["Rss"].split()[0] == "1024"
    flags = fields["VmFlags"].split()
    assert "dd" in flags and "dc" in flags  # neither dumped nor inherited


def test_a_region_ends_with_its_block(near, node):
    with node.alloc(4096) as region:
        memory = memoryview(region)
        assert region.registered
    assert not region.registered
    until(lambda: not [x for x in near.ask("regions") or [] if x["engine"] == "memory"], "the daemon has it still")
    memory[0] = 1  # as after close()


def test_more_than_the_machine_has(node):
    with pytest.raises(kvpipe.Quota, match="nbytes is 35184372088832: more than this machine's memory, [0-9]+: ask for less"):
        node.alloc(1 << 45)


def test_a_scheduler_has_none(near):
    with kvpipe.connect(near.socket, engine_id="memory", role="scheduler") as node:
        for what, call in (("alloc", lambda: node.alloc(4096)), ("register_fd", lambda: node.register_fd(0, 4096))):
            with pytest.raises(kvpipe.Invalid, match=f"^{what}: a scheduler owns no memory: its workers register it$"):
                call()


@pytest.mark.parametrize("first", ["region", "node"])
def test_views_outlive_what_they_came_from(near, first):
    node = kvpipe.connect(near.socket, engine_id="outlive")
    region = node.alloc(8192)
    words = numpy.frombuffer(region, numpy.uint64)
    part = memoryview(region)[4096:]
    words[:] = 5
    (region if first == "region" else node).close()
    assert not region.registered
    node.close()
    del node, region
    gc.collect()
    words[0] = 6
    part[0] = 9
    assert int(words.sum()) == 6 + 5 * 1023 + 4
    del words, part


def test_closing_a_region_in_a_layout_ends_its_work(near):
    with Cache(near.socket, "p") as producer:
        offer = producer.node.offer("k", [1], tokens=16)
        producer.region.close()
        with pytest.raises(kvpipe.Error) as error:
            offer.wait(60)
        assert error.value.completion is not None
        offer.wait_released(60)


def test_bad_sizes(node):
    for size in (0, -1, 1 << 50):
        with pytest.raises(kvpipe.Invalid, match="nbytes"):
            node.alloc(size)
    with pytest.raises(TypeError, match="alloc"):
        kvpipe.Region(3, 4096)
    with pytest.raises(TypeError):
        node.alloc(4096).resize(8192)


def test_huge_pages_or_an_error(node):
    # 2 MiB and a bit: the mapping is longer than the region.
    try:
        region = node.alloc((2 << 20) + 10, huge=True)
    except kvpipe.Quota as error:
        assert "nr_hugepages" in str(error)
        return
    assert len(memoryview(region)) == (2 << 20) + 10
    region.close()


def test_transparent_huge_pages(node, monkeypatch):
    """Where shmem gets them (shmem_enabled), st_blksize of a memfd is theirs, but its mappings end with a small page."""
    real = os.fstat

    def fstat(fd):
        return os.stat_result((*real(fd)[:10],), {"st_blksize": 2 << 20})

    monkeypatch.setattr(os, "fstat", fstat)
    assert os.fstat(0).st_blksize == 2 << 20
    region = node.alloc(5000, huge=False)
    smaps = pathlib.Path("/proc/self/maps").read_text()
    assert re.search(rf"^{region.address:x}-{region.address + 8192:x} .*memfd:kvpipe", smaps, re.M)
    assert region._size == 8192
    region.close()


@pytest.mark.parametrize("nbytes", [1, 4096, 5000])
def test_memory_is_unmapped_once(node, monkeypatch, nbytes):
    """Another thread may have mapped something there meanwhile."""
    again = []
    monkeypatch.setattr(kvpipe._memory, "unmap", lambda *where: again.append(where))
    node.alloc(nbytes, huge=False).close()
    region = node.alloc(nbytes, huge=False)
    del region
    gc.collect()
    assert again == []


def memfd(size, allocated=None, seals=fcntl.F_SEAL_SHRINK):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if allocated:
        os.posix_fallocate(fd, 0, allocated)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def for_reading():
    fd = memfd(8192, 8192)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    finally:
        os.close(fd)


def reading_end():
    end, other = os.pipe()
    os.close(other)
    return end


def test_register_fd(node):
    fd = memfd(8192, 8192)
    region = node.register_fd(fd, 5000)
    os.pwrite(fd, b"hello", 4090)
    os.close(fd)
    assert bytes(memoryview(region)[4090:4095]) == b"hello" and len(region) == 5000
    node.set_layout([view(region, blocks=2, heads=1)], {})
    region.close()


@pytest.mark.parametrize("huge", [None, True, False])
def test_a_sandbox_without_memfds(node, monkeypatch, huge):
    def forbidden(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    with pytest.raises(kvpipe.Unavailable, match="allow memfd_create"):
        node.alloc(4096, huge=huge)


def test_a_kernel_without_huge_pages(node, monkeypatch):
    """It forbids nothing, though it says what a sandbox does that knows no memfds."""
    def small(name, flags, plain=os.memfd_create):
        if flags & os.MFD_HUGETLB:
            raise OSError(errno.ENOSYS, "Function not implemented")
        return plain(name, flags)

    monkeypatch.setattr(os, "memfd_create", small)
    with pytest.raises(kvpipe.Quota, match="no huge pages"):
        node.alloc(4096, huge=True)
    node.alloc(4096).close()


def test_a_process_without_files(node):
    fd = memfd(8192, 8192)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))  # those that are open stay
    try:
        with pytest.raises(kvpipe.Quota, match="ulimit -n"):
            node.register_fd(fd, 8192)
        for huge in (None, True, False):
            with pytest.raises(kvpipe.Quota, match="no file for 8192 bytes.*ulimit -n"):
                node.alloc(8192, huge=huge)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    node.register_fd(fd, 8192).close()
    os.close(fd)


@pytest.mark.parametrize(
    "make, size, said",
    [
        (lambda: memfd(8192, 8192, 0), 8192, "F_SEAL_SHRINK"),
        (lambda: memfd(8192), 8192, "sparse"),
        (lambda: memfd(8192, 8192), 8193, "nbytes is 8193, the memfd has 8192 bytes: register at most those, or make it larger first"),
        (lambda: memfd(8192, 8192), 0, "nbytes"),
        (lambda: os.open("/dev/zero", os.O_RDWR), 4096, "is not a memfd: make one by os.memfd_create"),
        (reading_end, 4096, "is not a memfd: make one by os.memfd_create"),
        (for_reading, 4096, "must be open for reading and writing"),
        (lambda: memfd(8192, 8192, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), 8192, "sealed against writing"),
    ],
    ids=["unsealed", "sparse", "too long", "empty", "no memfd", "pipe", "for reading", "sealed"],
)
def test_memory_that_is_refused(node, make, size, said):
    fd = make()
    try:
        with pytest.raises(kvpipe.Invalid, match=said):
            node.register_fd(fd, size)
    finally:
        os.close(fd)
    with pytest.raises(kvpipe.Invalid, match="fd 9999"):
        node.register_fd(9999, 4096)


def test_a_region_of_another_session(near, node):
    with kvpipe.connect(near.socket, engine_id="other") as other:
        own, region, adopted = other.alloc(1 << 20), node.alloc(1 << 20), node.adopt(numpy.zeros(33 << 20, numpy.uint8))
        assert own.id == region.id
        for theirs in (region, adopted):
            with pytest.raises(kvpipe.Invalid, match=r"^views\[1\]: region is <kvpipe\..*Region 0x.*>, which is another node's: must be what this"):
                other.set_layout([view(own), view(theirs, 1, base=0)], {})
        region.close()
        with pytest.raises(kvpipe.Invalid, match=r"^views\[0\]: region is <kvpipe.Region 0x.* closed>, which is closed: must be"):
            other.set_layout([view(region)], {})
        other.set_layout([view(own)], {})


def test_a_closed_region(node):
    region = node.alloc(1 << 20)
    region.close()
    with pytest.raises(kvpipe.Invalid, match=r"^views\[0\]: region is <kvpipe.Region 0x.* closed>, which is closed: must be"):
        node.set_layout([view(region)], {})
    node.close()
    with pytest.raises(kvpipe.Closed):
        node.set_layout([view(region)], {})
