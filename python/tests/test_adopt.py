"""Arrays, tensors and buffers that exist already become regions, where they are."""

import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref

import kvpipe
import pytest
from caches import BLOCK, view
from daemons import Daemon

numpy = pytest.importorskip("numpy")

MIB = 1 << 20
LARGE = 48 * MIB + 300  # more than malloc() finds among what was freed before: it maps such a piece by itself
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
M_MMAP_THRESHOLD = -3
IS_MMAPPED = 2  # in the size before a piece (malloc/malloc.c of glibc)
LIMIT = 128 << 10


@pytest.fixture(scope="module", autouse=True)
def large_is_128_kib():
    """Otherwise what counts as large for malloc() grows with what was freed before."""
    assert libc.mallopt(M_MMAP_THRESHOLD, LIMIT) == 1


@pytest.fixture(autouse=True)
def nothing_large_is_free():
    """malloc() maps a large piece by itself when it finds none among what was freed before: all of those are taken."""
    pieces = [libc.malloc(LIMIT)]
    while not ctypes.c_size_t.from_address(pieces[-1] - ctypes.sizeof(ctypes.c_size_t)).value & IS_MMAPPED:
        pieces.append(libc.malloc(LIMIT))
    yield
    for piece in pieces:
        libc.free(piece)


@pytest.fixture
def node(near):
    with kvpipe.connect(near.socket, engine_id="adopts") as node:
        yield node


class Tensor:
    """What of torch's interface is used, over an array: torch itself need not be there."""

    def __init__(self, array, device="cpu", contiguous=True):
        self.array, self.device, self.contiguous = array, type("device", (), {"type": device})(), contiguous

    def is_contiguous(self):
        return self.contiguous

    def data_ptr(self):
        return self.array.ctypes.data

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize


def memfd(address):
    """Is a memfd behind this address?"""
    for line in open("/proc/self/maps"):
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= address < last:
            return "memfd:kvpipe" in line
    return False


def test_in_place(node):
    array = numpy.arange(3 * MIB // 8, dtype=numpy.uint64)
    address = array.ctypes.data
    assert address % 4096, "malloc() leaves room for its words"
    region = node.adopt(array)
    assert (region.address, region.nbytes, region.memory) == (address, 3 * MIB, array)
    assert region.registered and "AdoptedRegion" in repr(region) and memfd(address)
    assert (array == numpy.arange(3 * MIB // 8, dtype=numpy.uint64)).all()
    with pytest.raises(kvpipe.Busy, match="adopted already"):
        node.adopt(array)
    region.close()
    region.close()
    assert not region.registered and region.memory is None and "closed" in repr(region)
    array[7] = 1
    again = node.adopt(array)
    assert int(array[7]) == 1 and again.id != region.id
    again.close()


@pytest.fixture(params=["local", "tcp"])
def sockets(request, near, far):
    return (near, near, None) if request.param == "local" else (near, far, "near")


def test_bytes_arrive(sockets):
    """From one adopted array to another, which both threads' programs go on using."""
    producer, consumer, peer = sockets
    blocks = 2 * MIB // BLOCK
    source = numpy.random.default_rng(1).integers(0, 256, 2 * MIB, numpy.uint8)
    target = numpy.zeros((2, MIB), numpy.uint8)
    with kvpipe.connect(producer.socket, engine_id="from") as a, kvpipe.connect(consumer.socket, engine_id="to") as b:
        for node, array in ((a, source), (b, target)):
            node.set_layout([view(node.adopt(array), blocks=blocks)], {})
        offer = a.offer("adopted", list(range(0, blocks, 2)), tokens=blocks // 2 * 16)
        take = b.take("adopted", list(range(blocks // 2)), peer=peer, token=offer.token, tokens=blocks // 2 * 16)
        take.wait(60)
        offer.wait(60)
    wanted = source.reshape(blocks, BLOCK)[::2]
    assert (target.reshape(blocks, BLOCK)[: blocks // 2] == wanted).all()
    assert not target.reshape(blocks, BLOCK)[blocks // 2 :].any()


def test_other_threads_write_meanwhile(node):
    """A counter for each thread, all over the array: whatever was counted is there. 70 MiB are moved in two windows."""
    array = numpy.zeros((70 * MIB // 8192, 1024), numpy.uint64)
    stop, written = threading.Event(), [0, 0]
    begun = threading.Barrier(3)

    def write(me):
        begun.wait()
        while not stop.is_set():
            array[:, me] += 1
            written[me] += 1

    threads = [threading.Thread(target=write, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        region = node.adopt(array)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for me in range(2):
        assert (array[:, me] == written[me]).all()
    region.close()


@pytest.mark.parametrize("offset", [16, 64, 256, 4096])
def test_malloc(node, offset):
    """As frameworks allocate: large pieces, aligned to what vectors want."""
    place = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(place), offset, LARGE) == 0
    memory = (ctypes.c_char * LARGE).from_address(place.value)
    memory[LARGE - 1] = b"x"
    assert place.value % 4096 == offset % 4096
    region = node.adopt(memory)
    assert (region.address, region.nbytes) == (place.value, LARGE)
    assert memory[LARGE - 1] == b"x" and memfd(place.value)
    region.close()
    libc.free(place)
    assert not memfd(place.value)


def test_buffers(node):
    buffer = bytearray(MIB)
    buffer[5] = 6
    region = node.adopt(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    assert buffer[5] == 6
    region.close()
    buffer.extend(b"more")


def test_tensor(node):
    array = numpy.full((4, MIB // 4), 7, numpy.int16)
    region = node.adopt(Tensor(array))
    assert (region.address, region.nbytes) == (array.ctypes.data, 2 * MIB)
    assert (array == 7).all()
    region.close()
    with pytest.raises(kvpipe.Unavailable, match="memory of the CPU alone"):
        node.adopt(Tensor(array, "cuda"))
    with pytest.raises(kvpipe.Invalid, match="not contiguous"):
        node.adopt(Tensor(array, contiguous=False))


def test_torch(node):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(MIB, dtype=torch.float32).to(torch.bfloat16)
    before = tensor.clone()
    region = node.adopt(tensor)
    assert (region.address, region.nbytes) == (tensor.data_ptr(), 2 * MIB)
    assert bool((tensor == before).all())
    region.close()


def test_the_object_lives_as_long_as_the_region(near):
    with kvpipe.connect(near.socket, engine_id="holds") as node:
        array = numpy.ones(MIB, numpy.uint8)
        gone, address = weakref.ref(array), array.ctypes.data
        region = node.adopt(array)
        del array
        gc.collect()
        assert gone() is not None and ctypes.c_uint8.from_address(address + MIB - 1).value == 1
        region.close()
        assert gone() is None and not memfd(address)
        array = numpy.ones(MIB, numpy.uint8)
        gone = weakref.ref(array)
        region = node.adopt(array)
        del array
    # The session's end is the region's.
    assert not region.registered and gone() is None


def test_the_next_daemon_gets_it_too(folder, near):
    """A region that begins within a page, after its daemon was killed."""
    home, blocks = folder / "adopts", MIB // BLOCK
    daemon = Daemon(home, "adopts", folder / "ca")
    source, target = numpy.arange(MIB // 8, dtype=numpy.uint64), numpy.zeros(MIB // 8, numpy.uint64)
    with kvpipe.connect(daemon.socket, engine_id="from") as a, kvpipe.connect(daemon.socket, engine_id="to") as b:
        for node, array in ((a, source), (b, target)):
            node.set_layout([view(node.adopt(array), blocks=blocks)], {})
        offer = a.offer("k", list(range(blocks)), tokens=blocks * 16)
        daemon.kill()
        daemon = Daemon(home, "adopts", folder / "ca")
        b.take("k", list(range(blocks)), token=offer.token, tokens=blocks * 16).wait(60)
    daemon.stop()
    assert (source == target).all()


def test_children_share_it(node):
    array = numpy.zeros(MIB, numpy.uint8)
    region = node.adopt(array)
    pid = os.fork()
    if pid == 0:
        array[3] = 4
        os._exit(0 if not region.registered else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert array[3] == 4 and region.registered
    region.close()


def test_refused(node):
    array = numpy.zeros((64, MIB // 64), numpy.uint8)
    for memory, said in [
        (bytes(MIB), "read-only, and takes write there: adopt one that can be written"),
        (array[:, 1:], "not C-contiguous"),
        (array[2:9], "may hold others' data"),
        (memoryview(bytearray(MIB))[::2], "not contiguous"),
        (numpy.zeros(0), "no bytes: adopt one that has"),
        (numpy.broadcast_to(array, (2, 64, MIB // 64)), "read-only"),
        (7, "must be a tensor, an array or a buffer"),
        (node.alloc(MIB), "kvpipe_mem_register_fd"),
        (numpy.zeros(100, numpy.uint8), "heap|others' data"),
    ]:
        with pytest.raises(kvpipe.Invalid, match=said):
            node.adopt(memory)
    assert not memfd(array.ctypes.data) and not array.any()


CUDA = """
int cuPointerGetAttribute(void *to, int what, unsigned long long at) {
	extern unsigned long long registered;
	extern int initialized, asked, page;
	asked++;
	if (!initialized)
		return 3;
	if (what != 2 || at < registered || at >= registered + page)
		return 1;
	*(unsigned *)to = 1;
	return 0;
}
unsigned long long registered;
int initialized, asked, page;
"""

WITH_CUDA = """
import ctypes, mmap, sys
import kvpipe
node = kvpipe.connect(sys.argv[1], engine_id="cuda")
cuda = ctypes.CDLL(sys.argv[2])
registered = ctypes.c_ulonglong.in_dll(cuda, "registered")
initialized, asked, page = (ctypes.c_int.in_dll(cuda, name) for name in ("initialized", "asked", "page"))
page.value = mmap.PAGESIZE
node.adopt(bytearray(1 << 27))
print("asked before CUDA is initialized:", asked.value)
initialized.value = 1
memory = bytearray(1 << 27)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for offset in (0, page.value, (1 << 26) + 3 * page.value, (1 << 27) - page.value):
    registered.value = address + offset
    try:
        node.adopt(memory)
    except kvpipe.Invalid as error:
        print(error)
registered.value = asked.value = 0
node.adopt(memory)
first, last = address // page.value, (address + len(memory) - 1) // page.value
print("asked about each page once:", asked.value == last - first + 1)
node.close()
"""


def test_memory_of_cuda(near, tmp_path):
    """With a stand-in for the driver, which knows one page, wherever that is."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler, "the library was built without a compiler?"
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, "-xc", "-"],
                   input=CUDA, text=True, check=True)
    done = subprocess.run([sys.executable, "-c", WITH_CUDA, near.socket, library], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(re.findall("registered with CUDA", done.stdout)) == 4, done.stdout
    assert "asked before CUDA is initialized: 1\n" in done.stdout
    assert "asked about each page once: True\n" in done.stdout
