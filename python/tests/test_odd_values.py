"""Values that ctypes would cut off, or that Python's own functions stumble over: each is refused by name, with an error of the package."""

import asyncio
import ctypes
import os
from decimal import Decimal
from fractions import Fraction

import kvpipe
import kvpipe.torch
import pytest
from caches import view
from kvpipe import RawTensor, _values

HUGE = 10**400  # no float is as large
LONG = 10**5000  # and no text as long: newer Pythons refuse to write it down
SHOWN = _values.show(LONG)
TOKEN = b"0123456789abcdef"


class Mute:
    def __repr__(self):
        raise RuntimeError("says nothing")


class Picture(Mute):
    """Of an array's memory it has a copy alone, as images of Pillow have."""

    __array_interface__ = {"version": 3, "typestr": "|u1", "shape": (4096,), "data": bytes(4096)}


def gone():
    buffer = memoryview(bytearray(8192))
    buffer.release()
    return buffer


class Place:
    """A session with one of everything that has calls."""

    def __init__(self, node, name):
        self.node = node
        self.region = node.alloc(4096)
        self.view = view(self.region, blocks=1, heads=1)
        self.tx, self.rx = node.pipe(name, "send", capacity=4096), node.pipe(name, "recv")
        self.own, self.sel = node.lookup_buffer(name, capacity=4096), node.lookup_buffer(name)

    def take(self, **more):
        return self.node.take("k", more.pop("blocks", [0]), **{"tokens": 16, "token": TOKEN, **more})

    def raw(self, dtype="uint8", shape=(3,), data=b"abc"):
        self.tx.send_tensor(RawTensor(dtype, shape, data))

    def torch(self):
        return kvpipe.torch.LookupBuffer(self.node, self.own.name + " of torch", capacity=4096)

    def changed(self, **fields):
        for name, value in fields.items():
            setattr(self.view, name, value)
        self.node.set_layout([self.view])


@pytest.fixture
def place(near, name):
    with kvpipe.connect(near.socket, engine_id="odd") as node:
        there = Place(node, name)
        with there.tx, there.rx, there.own, there.sel:
            yield there


@pytest.mark.parametrize(
    "said, call",
    [
        # dimensions and types of elements
        ("shape[0] is 18446744073709551621: must be 0 to 2^63 - 1", lambda p: p.raw(shape=(2**64 + 5, 0), data=b"")),
        ("shape[1] is -3: must be 0 to", lambda p: p.raw(shape=(1, -3))),
        ("shape[0] is 1.5: must be an integer", lambda p: p.raw(shape=(1.5,))),
        ("shape is None: must be a tuple", lambda p: p.raw(shape=None)),
        ("at most 16", lambda p: p.raw(shape=(2**62,) * 999)),
        (r"dtype 'uint8\x00junk' cannot be sent", lambda p: p.raw(dtype="uint8\0junk")),
        (r"dtype '\ud800' cannot be sent", lambda p: p.raw(dtype="\ud800")),
        ("dtype is []: must be a name", lambda p: p.raw(dtype=[])),
        # times
        (f"timeout is {SHOWN}: every operation ends", lambda p: p.take(timeout=LONG)),
        ("every operation ends", lambda p: p.take(timeout=HUGE)),
        ("timeout is nan: must be 0 or more", lambda p: p.take(timeout=float("nan"))),
        ("timeout is inf: every operation ends", lambda p: p.take(timeout=float("inf"))),
        ("lease is 1000", lambda p: p.node.offer("k", [0], tokens=16, lease=HUGE)),
        ("nothing waits for ever", lambda p: p.rx.recv_tensor(HUGE)),
        ("must be 0 or more", lambda p: p.rx.recv_tensor(-HUGE)),
        ("timeout is [1]: must be seconds", lambda p: p.sel.get("k", [1])),
        ("every operation ends", lambda p: p.region.close(HUGE)),
        ("timeout is nan", lambda p: p.region.invalidate(float("nan"))),
        # descriptors and sizes
        ("fd is 1099511627776: must be 0 to 2^31 - 1", lambda p: p.node.register_fd(2**40, 4096)),
        ("nbytes is 9223372036854775808: must be 0 to 2^63 - 1", lambda p: p.node.register_fd(0, 2**63)),
        ("fd is 'x': must be an integer", lambda p: p.node.register_fd("x", 4096)),
        ("fd is None: must be an integer", lambda p: p.node.register_fd(None, 1)),
        ("fd is 1.5: must be an integer", lambda p: p.node.register_fd(1.5, 1)),
        (f"nbytes is {SHOWN}: must be", lambda p: p.node.alloc(LONG)),
        ("alloc: nbytes is -1: must be 1 to 2^46", lambda p: p.node.alloc(-1)),
        ("alloc: nbytes is 0: must be 1 to 2^46", lambda p: p.node.alloc(0)),
        # layouts
        ("num_blocks is -4: must be 1 to 67,108,864", lambda p: p.changed(num_blocks=-4)),
        ("num_blocks is 67108865: must be 1 to 67,108,864", lambda p: p.changed(num_blocks=2**26 + 1)),
        ("region is None: must be what alloc()", lambda p: view(None, base=0)),
        ("region is None: must be what alloc()", lambda p: p.changed(region=None)),
        ("base is 18446744073709551616: must be", lambda p: p.changed(base=2**64)),
        ("views is <released memory", lambda p: p.node.set_layout(gone())),
        ("kind is []: must be one of paged, opaque", lambda p: p.changed(kind=[])),
        ("fingerprint is [1, 2]: must be a dict", lambda p: p.node.set_layout([p.view], [1, 2])),
        ("fingerprint is 5: must be a dict", lambda p: p.node.set_layout([p.view], 5)),
        ("fingerprint: 'layers': an int of too many digits", lambda p: p.node.set_layout([p.view], {"layers": LONG})),
        # tokens
        ("token is empty: must be 16 to 32 bytes", lambda p: p.node.pipe("p", "send", token=b"")),
        ("token is empty: must be 16 to 32 bytes", lambda p: p.node.lookup_buffer("p", token=bytearray())),
        ("token is empty: must be 16 to 32 bytes", lambda p: p.node.offer("k", [0], tokens=16, token=b"")),
        # one of several words
        ("role is []: must be one of worker, scheduler", lambda p: kvpipe.connect(engine_id="e", role=[])),
        ("end is []: must be one of send, recv", lambda p: p.node.pipe("p", [])),
        ("match is {}: must be one of prefix, exact", lambda p: p.sel.drop_select(match={})),
        ("framework is []: must be one of auto", lambda p: p.rx.recv_tensor(framework=[])),
        ("socket is 5: must be a path", lambda p: kvpipe.connect(5, engine_id="e")),
        ("rank is []: a pipe has two sides", lambda p: kvpipe.torch.Pipe(p.node, "p", [])),
        ("tokens: int is no tensor", lambda p: p.torch().insert(5, None, None, None, None)),
        # buffers that were released
        ("blocks is <released memory", lambda p: p.take(blocks=gone())),
        ("blocks[0] is <released memory", lambda p: p.take(blocks=[gone(), [1]])),
        ("memoryview is no tensor", lambda p: p.tx.send_tensor(gone())),
        ("tokens: memoryview is no tensor", lambda p: p.own.insert(gone(), None, None, None, None)),
        ("data is memoryview: must be a buffer", lambda p: p.raw(data=gone())),
        ("memory is <released memory", lambda p: p.node.adopt(gone())),
        ("memory is <Picture>: must be a tensor, an array", lambda p: p.node.adopt(Picture())),
        ("key is <released memory", lambda p: p.own.put(gone(), None)),
        ("content is <released memory", lambda p: p.take(content=gone())),
        ("token is a memoryview that was released", lambda p: p.take(token=gone())),
        # numbers and truths that are none
        ("part is <memory at", lambda p: p.take(part=memoryview((ctypes.c_uint64 * 2)(0, 1)))),
        ("shape is <memory at", lambda p: p.raw(shape=memoryview((ctypes.c_uint64 * 1)(3)))),
        ("sealed is <released memory", lambda p: p.node.offer("k", [0], tokens=16, sealed=gone())),
        ("layered is <released memory", lambda p: p.take(layered=gone())),
        ("quiesced is <released memory", lambda p: p.node.adopt(bytearray(1), gone())),
        ("huge is <released memory", lambda p: p.node.alloc(4096, huge=gone())),
        # what cannot be shown, or is too long to be
        (f"blocks is {SHOWN}: must be a list", lambda p: p.node.offer("k", LONG, tokens=16)),
        (f"blocks[0] is {SHOWN}: must be 0 to 0xffffffff", lambda p: p.node.offer("k", [LONG], tokens=16)),
        (f"tokens is {SHOWN}: must be 0 to", lambda p: p.node.offer("k", [0], tokens=LONG)),
        ("part is (0, 0): must be", lambda p: p.take(part=(0, 0))),
        (f"part[1] is {SHOWN}: must be", lambda p: p.take(part=(0, LONG))),
        (f"shape[0] is {SHOWN}: must be", lambda p: p.raw(shape=(LONG,))),
        ("trace is <Mute>: must be a str", lambda p: p.take(trace=Mute())),
        ("views[0] is <Mute>: must be", lambda p: p.node.set_layout([Mute()])),
        (f"capacity is {SHOWN}: must be", lambda p: p.node.lookup_buffer("b", capacity=LONG)),
    ],
)
def test_refused_by_name(place, said, call):
    with pytest.raises(kvpipe.Invalid) as error:
        call(place)
    assert said in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("token", ["a secret of 16 or more", ["a secret"], {"a secret": 1}], ids=lambda token: type(token).__name__)
@pytest.mark.parametrize(
    "call",
    [
        lambda p, token: p.take(token=token),
        lambda p, token: p.node.offer("k", [0], tokens=16, token=token),
        lambda p, token: p.node.watch("k", None, token),
        lambda p, token: p.node.drop("k", None, token),
        lambda p, token: p.node.pipe("another", "send", token=token),
        lambda p, token: p.node.lookup_buffer("another", capacity=4096, token=token),
    ],
)
def test_what_may_be_a_token_is_not_shown(place, token, call):
    with pytest.raises(kvpipe.Invalid) as error:
        call(place, token)
    said = f"token is a {type(token).__name__}: must be bytes, as offer.token is (bytes.fromhex() for one that came as text)"
    assert said in str(error.value) and "secret" not in repr(error.value)
    assert error.value.__cause__ is None and error.value.__context__ is None


def test_shown_shortly():
    assert _values.show("a") == "'a'" and _values.show(Mute()) == "<Mute>" and len(SHOWN) <= 60
    long = _values.show([1] * 10**5)
    assert len(long) == 60 and long.startswith("[1, 1") and long.endswith("...")


def test_names_that_are_no_utf8(place):
    with pytest.raises(kvpipe.Error, match="part"):
        place.changed(part="\udc80")


@pytest.mark.parametrize("timeout", ["0.01", Decimal("0.01"), Fraction(1, 100)], ids=repr)
def test_seconds_of_any_kind(place, timeout):
    """Also where asyncio counts them, which knows floats alone."""
    place.node.set_layout([place.view])
    take = place.take()
    with pytest.raises(kvpipe.Timeout, match="not within 0.01 s"):
        asyncio.run(take.wait_async(timeout))
    assert take.cancel()


def test_integers_of_any_kind(place):
    """What __index__ makes an integer is one to the library, too."""
    numpy = pytest.importorskip("numpy")
    with place.node.lookup_buffer("sized", capacity=numpy.int64(4096)):
        pass
    place.tx.send_tensor(RawTensor("uint8", numpy.array([3]), b"abc"))
    assert place.rx.recv_tensor(framework="raw").shape == (3,)
    assert _values.answer("timeout", numpy.float64(0)) == _values.answer("timeout", 0)


@pytest.mark.parametrize("path", [os.fsencode, lambda path: path + "\0"], ids=["bytes", "NUL"])
def test_a_socket_that_is_no_str(near, path):
    with pytest.raises(kvpipe.Invalid, match="socket is "):
        kvpipe.connect(path(near.socket), engine_id="e")
