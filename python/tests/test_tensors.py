"""What is sent is what comes: every type, every shape, of every framework that is there."""

import array
import gc
import subprocess
import sys
import weakref

import kvpipe
import numpy
import pytest
from kvpipe import RawTensor, received

DTYPES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
          "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
          "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1}
OF_ML_DTYPES = {"bfloat16"} | {d for d in DTYPES if d.startswith("float8")}


@pytest.fixture
def pipe(near, name):
    with kvpipe.connect(near.socket, engine_id="a") as node:
        with node.pipe(name, "send", capacity=1 << 20) as tx, node.pipe(name, "recv") as rx:
            yield tx, rx


@pytest.mark.parametrize("dtype", DTYPES)
def test_raw(pipe, dtype):
    tx, rx = pipe
    for shape in [(), (0,), (7,), (3, 0, 2), (2, 3, 4), (1,) * 16]:
        n = DTYPES[dtype]
        for k in shape:
            n *= k
        data = bytes(i % 2 if dtype == "bool" else i % 251 for i in range(n))
        tx.send_tensor(RawTensor(dtype, shape, data))
        got = rx.recv_tensor(framework="raw")
        assert got == RawTensor(dtype, shape, got.data) and bytes(got.data) == data and not got.data.readonly


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - OF_ML_DTYPES))
def test_numpy(pipe, dtype):
    tx, rx = pipe
    a = numpy.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(dtype)
    for t in [a, a.T, a[:, ::2], a[::-1, :, 1:3], a[0, 0, 0, 0], a[..., :0], numpy.broadcast_to(a[0, 0, 0], (3, 5)),
              a.reshape((1,) * 12 + a.shape), a.astype(a.dtype.newbyteorder(">")), numpy.asfortranarray(a)]:
        tx.send_tensor(t)
        got = rx.recv_tensor(framework="numpy")
        assert got.dtype == numpy.dtype(dtype) and got.shape == t.shape and numpy.array_equal(got, t)
        assert got.flags.writeable and got.flags.c_contiguous


@pytest.mark.parametrize("dtype", sorted(OF_ML_DTYPES))
def test_ml_dtypes(pipe, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    tx, rx = pipe
    a = numpy.arange(24, dtype=numpy.float32).reshape(2, 12).astype(getattr(ml_dtypes, dtype))
    tx.send_tensor(a.T)
    got = rx.recv_tensor(framework="numpy")
    assert got.dtype == a.dtype and got.tobytes() == a.T.tobytes()


def test_a_type_that_the_framework_lacks(pipe, monkeypatch):
    """The tensor stays the next one."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    tx, rx = pipe
    tx.send_tensor(RawTensor("bfloat16", (2,), b"abcd"))
    for _ in range(2):
        with pytest.raises(kvpipe.Unavailable, match='numpy has no bfloat16.*framework="raw"'):
            rx.recv_tensor(framework="numpy")
    assert rx.recv_tensor(framework="raw").dtype == "bfloat16"


def test_frameworks_that_are_not_there(monkeypatch):
    there = {"numpy"}
    monkeypatch.setattr(received.importlib.util, "find_spec", lambda name: name if name in there else None)
    for auto in ("numpy", "raw"):
        monkeypatch.setattr(received, "_auto", None)
        assert received.choose("auto") == auto
        there.discard("numpy")
    for name in ("torch", "numpy"):
        with pytest.raises(kvpipe.Unavailable, match=f'framework is "{name}", which is not installed'):
            received.choose(name)


def test_buffers(pipe):
    tx, rx = pipe
    for value, dtype, shape in [
        (b"abc", "uint8", (3,)), (bytearray(5), "uint8", (5,)), (b"", "uint8", (0,)),
        (array.array("f", [1, 2]), "float32", (2,)), (array.array("q", [-1]), "int64", (1,)), (array.array("H", [9]), "uint16", (1,)),
        (memoryview(bytes(range(10)))[::2], "uint8", (5,)), (memoryview(b"12345678").cast("i", (1, 2)), "int32", (1, 2)),
        (memoryview(b"\1\0").cast("?"), "bool", (2,)),
    ]:
        tx.send_tensor(value)
        got = rx.recv_tensor(framework="raw")
        assert (got.dtype, got.shape, bytes(got.data)) == (dtype, shape, memoryview(value).tobytes())


def test_a_tensor_owns_its_memory(pipe):
    tx, rx = pipe
    tx.send_tensor(numpy.arange(1000))
    tensor = rx.recv_tensor(framework="numpy")
    base = tensor
    while getattr(base, "base", None) is not None:
        base = base.base
    message = weakref.ref(getattr(base, "obj", base)._message)
    part = tensor[10:20]
    del tensor, base
    gc.collect()
    assert message() is not None and part.tolist() == list(range(10, 20))
    del part
    gc.collect()
    assert message() is None


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def bits(torch, t):
    """The bytes of a tensor, of which some types know no equality."""
    return t.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch(pipe, torch, dtype):
    kind = getattr(torch, dtype, None)
    if kind is None:
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    tx, rx = pipe
    numbers = torch.arange(24 * DTYPES[dtype]) % (2 if dtype == "bool" else 251)
    a = numbers.to(torch.uint8).view(kind).reshape(2, 3, 4)
    for t in [a, a.transpose(0, 2), a[:, 1:], a[0, 0, 0], a[:, :0], a[0, 0].expand(5, 4), a.reshape((1,) * 13 + a.shape)]:
        tx.send_tensor(t)
        got = rx.recv_tensor(framework="torch")
        assert got.dtype == kind and got.shape == t.shape and got.is_contiguous() and bits(torch, got) == bits(torch, t)


def test_torch_without_numpy(near, torch):
    code = f"""
import sys
sys.modules["numpy"] = None
import gc, kvpipe, torch
gc.freeze()  # each look at all that torch brought would take a tenth of a second
with kvpipe.connect({near.socket!r}, engine_id="a") as node:
    with node.pipe("q", "send", capacity=65536) as tx, node.pipe("q", "recv") as rx:
        for _ in range(100):
            tx.send_tensor(torch.arange(4000).to(torch.bfloat16).reshape(80, 50).T)
            got = rx.recv_tensor()[5:]
            gc.collect()
            assert got.dtype == torch.bfloat16 and got[0, :3].tolist() == [5, 55, 105]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_torch_is_what_auto_gives(pipe, torch, monkeypatch):
    monkeypatch.setattr(received, "_auto", None)
    tx, rx = pipe
    tx.send_tensor(torch.nn.Parameter(torch.ones(3)))
    assert isinstance(rx.recv_tensor(), torch.Tensor)


def test_torch_on_another_device(pipe, torch):
    with pytest.raises(kvpipe.Unavailable, match=r"on meta, which this build does not support: pass tensor.cpu\(\)"):
        pipe[0].send_tensor(torch.empty(3, device="meta"))
    with pytest.raises(kvpipe.Invalid, match="must be torch.strided"):
        pipe[0].send_tensor(torch.eye(3).to_sparse())


def test_another_device_without_torch(pipe, monkeypatch):
    """What is asked of a tensor of torch, with one that is made up."""

    class Tensor:
        device = type("device", (), {"type": "cuda", "__str__": lambda self: "cuda:1"})()

    fake = type(sys)("torch")
    fake.Tensor = Tensor
    monkeypatch.setitem(sys.modules, "torch", fake)
    with pytest.raises(kvpipe.Unavailable, match=r"the tensor is on cuda:1, which this build does not support: pass tensor.cpu\(\)"):
        pipe[0].send_tensor(Tensor())


def test_without_any_framework(near):
    """Neither torch nor numpy is imported, nor needed."""
    code = f"""
import sys, kvpipe
sys.modules["numpy"] = sys.modules["torch"] = None
with kvpipe.connect({near.socket!r}, engine_id="a") as node:
    with node.pipe("q", "send", capacity=4096) as tx, node.pipe("q", "recv") as rx:
        tx.send_tensor(b"abc")
        assert bytes(rx.recv_tensor(framework="raw").data) == b"abc"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_while_another_thread_imports_a_framework(pipe, monkeypatch, framework):
    monkeypatch.setitem(sys.modules, framework, type(sys)(framework))
    tx, rx = pipe
    tx.send_tensor(b"abc")
    assert bytes(rx.recv_tensor(framework="raw").data) == b"abc"


def test_sending_an_array_imports_nothing(near):
    """A child that is forked during another thread's import would wait for it for ever."""
    code = f"""
import sys, kvpipe, numpy
with kvpipe.connect({near.socket!r}, engine_id="a") as node:
    with node.pipe("q", "send", capacity=4096) as tx:
        tx.send_tensor(b"abc")
        before = set(sys.modules)
        tx.send_tensor(numpy.arange(3))
        assert not set(sys.modules) - before, set(sys.modules) - before
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_would_come_as_something_else_is_refused(pipe):
    tx, rx = pipe
    big = numpy.arange(3, dtype=">f4")
    for error, value in [
        ("masked array cannot be sent, its mask would be lost", numpy.ma.array([1, 2, 3], mask=[0, 1, 0])),
        ("masked array", numpy.ma.masked),
        ("format '>f' has the bytes of its elements in the other order", memoryview(big)),
        ("2\\^63 - 1 bytes", RawTensor("float32", (0, 2**62), b"")),
    ]:
        with pytest.raises(kvpipe.Invalid, match=error):
            tx.send_tensor(value)
    for value in [big, memoryview(numpy.arange(3, dtype="<f4"))]:
        tx.send_tensor(value)
        assert rx.recv_tensor(framework="numpy").tolist() == [0, 1, 2]


def test_a_shape_that_the_framework_cannot_have_is_not_in_the_way(pipe, monkeypatch):
    def cannot(*_):
        raise ValueError("array is too big")

    tx, rx = pipe
    tx.send_tensor(numpy.arange(3))
    tx.send_tensor(numpy.arange(4))
    with monkeypatch.context() as patch:
        patch.setitem(received._MAKERS, "numpy", cannot)
        with pytest.raises(kvpipe.Incompatible, match=r"numpy has no tensor of int64 \(3,\): array is too big"):
            rx.recv_tensor(framework="numpy")
    assert rx.recv_tensor(framework="numpy").tolist() == [0, 1, 2, 3]
