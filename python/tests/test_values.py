"""Arguments: what is accepted in which form, and which errors name what."""

import array
import copy
import ctypes
import pickle
import random
import time

import kvpipe
import pytest
from kvpipe import _abi, _values, completion, errors
from kvpipe.blocks import Packed
from kvpipe.layout import pack_fingerprint, pack_views

numpy = pytest.importorskip("numpy")


def lists(packed):
    """{group: ids} as the library would read them."""
    out = {}
    for entry in packed.array[: packed.count]:
        words = (ctypes.c_uint32 * entry.count).from_address(entry.ids) if entry.count else []
        out[entry.group] = list(words)
        assert (entry.first_token, entry.ntokens) == (3, 5)
    return out


class Tensor:
    """What kvpipe uses of torch.Tensor."""

    def __init__(self, values, dtype="int32", device="cpu", contiguous=True):
        self._data = numpy.array(values, getattr(numpy, dtype))
        self.dtype, self._contiguous = "torch." + dtype, contiguous
        self.device = type("Device", (), {"type": device, "__str__": lambda self: device})()
        self.shape = self._data.shape

    def __len__(self):
        return len(self._data)

    def dim(self):
        return self._data.ndim

    def numel(self):
        return self._data.size

    def is_contiguous(self):
        return self._contiguous

    def data_ptr(self):
        assert self._contiguous, "the ids do not lie side by side"
        return self._data.ctypes.data

    def tolist(self):
        return self._data.tolist()


FORMS = [
    [7, 9, 0],
    (7, 9, 0),
    array.array("I", [7, 9, 0]),
    array.array("q", [7, 9, 0]),
    numpy.array([7, 9, 0], numpy.uint32),
    numpy.array([7, 9, 0], numpy.int32),
    numpy.array([7, 9, 0], numpy.int64),
    numpy.array([7, 5, 9, 5, 0], numpy.int32)[::2],
    memoryview(array.array("I", [7, 9, 0])),
    memoryview(array.array("I", [7, 9, 0]).tobytes()).cast("I"),
    (ctypes.c_uint32 * 3)(7, 9, 0),
    (ctypes.c_uint64 * 3)(7, 9, 0),
    memoryview((ctypes.c_int32 * 5)(7, 5, 9, 5, 0))[::2],
    [numpy.uint32(7), numpy.int64(9), 0],
    Tensor([7, 9, 0]),
    Tensor([7, 9, 0], "uint32"),
    Tensor([7, 9, 0], "int64"),
    Tensor([7, 9, 0], contiguous=False),
    {7: 0, 9: 0, 0: 0}.keys(),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: type(f).__name__)
def test_one_list(form):
    packed = Packed(form, 3, 5)
    assert lists(packed) == {0: [7, 9, 0]} and not packed.grouped
    assert packed.copy().within([(0, 8, 10), (1, 0, 100)]) == [9]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: type(f).__name__)
def test_list_of_each_group(form):
    packed = Packed([form, None, [1], []], 3, 5)
    assert lists(packed) == {0: [7, 9, 0], 2: [1], 3: []} and packed.grouped
    assert packed.copy().within([(0, 0, 8), (2, 0, 0xFFFFFFFF)]) == [[7, 0], [], [1], []]


NONE = [  # as signed numbers of 32 bits, NO_BLOCK is -1
    numpy.array([7, -1], numpy.int32),
    numpy.array([7, 5, -1], numpy.int32)[::2],
    Tensor([7, -1]),
    Tensor([7, -1], contiguous=False),
]


@pytest.mark.parametrize("form", NONE, ids=lambda f: type(f).__name__)
def test_no_block_in_signed_words(form):
    assert lists(Packed(form, 3, 5)) == {0: [7, kvpipe.NO_BLOCK]}


def test_buffers_are_not_copied():
    ids = numpy.array([1, 2, 3], numpy.uint32)
    packed = Packed(ids, 3, 5)
    ids[1] = 77
    assert lists(packed) == {0: [1, 77, 3]}
    copy = packed.copy()  # a take's own
    ids[1] = 5
    assert copy.within([(0, 0, 100)]) == [1, 77, 3]
    tensor = Tensor([4])
    assert Packed(tensor, 3, 5).array[0].ids == tensor.data_ptr()


def test_failed_of_many():
    """Each id is looked for once, in the order in which they were given, however many runs there are."""
    rng = random.Random(1)
    runs = [(0, first, first + rng.choice((0, 1, 1, 2, 5))) for first in rng.choices(range(400), k=60)] + [(1, 0, 400)]
    ids = rng.choices(range(410), k=1000)
    inside = {i for group, first, stop in runs if group == 0 for i in range(first, stop)}
    assert Packed(ids, 0, 5).copy().within(runs) == [i for i in ids if i in inside]
    many = range(30_000)
    copy, began = Packed(many, 0, 5).copy(), time.thread_time()
    assert copy.within([(0, 2 * i, 2 * i + 1) for i in many]) == list(many[::2])
    assert time.thread_time() - began < 5


UNSIGNED = [
    bytes([1, 200]),
    array.array("H", [1, 60000]),
    (ctypes.c_uint8 * 2)(1, 255),
    numpy.array([1, 1 << 31], numpy.uint32),
    numpy.array([1, 0, 1 << 31, 0], numpy.uint32)[::2],
    numpy.array([1, 1 << 31], numpy.uint64),
]


@pytest.mark.parametrize("form", UNSIGNED, ids=lambda f: type(f).__name__)
def test_an_unsigned_id_is_not_taken_for_a_negative_one(form):
    assert lists(Packed(form, 3, 5)) == {0: list(form)}


def test_holes():
    packed = Packed(numpy.array([-1, 4], numpy.int32), 3, 5)
    assert lists(packed) == {0: [kvpipe.NO_BLOCK, 4]}
    assert packed.copy().within([(0, 0, 0xFFFFFFFF)]) == [4]
    assert lists(Packed(numpy.array([-1, 9, 4], numpy.int32)[::2], 3, 5)) == {0: [kvpipe.NO_BLOCK, 4]}


def test_nothing_yet():
    assert Packed([], 0, 0).count == 0
    assert Packed([], 0, 5).count == 1  # refused by the library: ids are missing


@pytest.mark.parametrize(
    "form, said",
    [
        ([1, -2], "blocks[1] is -2"),
        ([1, 2**32], "blocks[1] is 4294967296"),
        ([1, "2"], "blocks[1] is '2'"),
        ([1, 2.5], "blocks[1] is 2.5"),
        ([[1], [2, -1]], "blocks[1][1] is -1"),
        (numpy.array([1, -5], numpy.int64), "blocks[1] is -5"),
        (numpy.zeros((2, 2), numpy.uint32), "blocks has 2 dimensions"),
        (numpy.zeros(2, numpy.float32), "buffer of format 'f'"),
        (Tensor([1], device="cuda:0"), "blocks is a tensor on cuda:0"),
        (Tensor([[1]]), "blocks has 2 dimensions"),
        (7, "blocks is 7"),
        (None, "blocks is None: no list covers the 16 tokens"),
        ([None, None], "no list covers the 16 tokens"),
    ],
)
def test_bad_blocks(form, said):
    with pytest.raises(kvpipe.Invalid) as error:
        Packed(form, 0, 16)
    assert said in str(error.value)


def test_tokens_and_times():
    assert _values.tokens(5) == (0, 5) and _values.tokens((3, 8)) == (3, 5)
    assert _values.wait("t", None) == 2**63 - 1 and _values.wait("t", 0) == 0 and _values.wait("t", 1e30) == 2**63 - 1
    assert _values.duration("t", None) == 0 and _values.duration("t", 1.5) == 1_500_000_000
    bad = [
        lambda: _values.tokens((8, 3)),
        lambda: _values.tokens(-1),
        lambda: _values.tokens((1, 2, 3)),
        lambda: _values.wait("t", -1),
        lambda: _values.wait("t", float("nan")),
        lambda: _values.wait("t", "soon"),
        lambda: _values.duration("t", 0),
        lambda: _values.duration("t", float("inf")),
        lambda: _values.duration("t", 30 * 86_400 + 1),
        lambda: _values.integer("n", 2**64, 64),
        lambda: _values.integer("n", 1.0),
        lambda: _values.text("peer", "a\0b"),
        lambda: _values.text("peer", b"a"),
        lambda: _values.binary("content", "text"),
        lambda: _values.required_secret(None),
    ]
    for call in bad:
        with pytest.raises(kvpipe.Invalid):
            call()


def test_keys():
    assert _values.key("n\u00e9") == "n\u00e9".encode() and _values.key(bytearray(b"k")) == b"k"
    with pytest.raises(kvpipe.Invalid, match="key is 7: must be str or bytes"):
        _values.key(7)
    with pytest.raises(kvpipe.Invalid, match="key is .*surrogates not allowed"):
        _values.key("\ud800")


def test_fingerprint():
    fields = pack_fingerprint({"model": "m", "layers": 32, "mla": False})
    assert [(f.key, f.value) for f in fields] == [(b"model", b"m"), (b"layers", b"32"), (b"mla", b"False")]
    assert len(pack_fingerprint(None)) == 0
    for bad in ({"a": 1.5}, {"a": None}, {1: "a"}):
        with pytest.raises(kvpipe.Invalid):
            pack_fingerprint(bad)


def test_views():
    for bad, said in ((7, "views is 7"), (None, "views is None"), ([7], r"views\[0\] is 7")):
        with pytest.raises(kvpipe.Invalid, match=said):
            pack_views(bad)


def test_view():
    region = type("Fake", (), {"id": 7})()
    good = dict(num_blocks=4, block_stride=64, block_size=16, heads=1, strides=(4, 4), content_bytes=4)
    record = kvpipe.View(region, 0, **good).record()
    assert (record.region, record.kind, record.part, record.total_heads) == (7, 1, b"kv", 1)
    opaque = kvpipe.View(region, 8, kind="opaque", num_blocks=4, block_stride=64, content_bytes=64, part="ssm").record()
    assert (opaque.kind, opaque.token_stride, opaque.heads, opaque.base) == (2, 0, 1, 8)
    head_major = kvpipe.View(region, 0, **{**good, "strides": (4, 10 << 30)}).record()
    assert (head_major.token_stride, head_major.head_stride) == (4, 10 << 30), "eight heads of a pool of 80 GiB"
    for change in (
        {"kind": "square"}, {"strides": None}, {"strides": (4, 2**64)}, {"block_size": 0}, {"part": ""}, {"part": "x" * 16},
        {"num_blocks": -1}, {"heads": 2**32}, {"strides": (1,)}, {"layer": "0"},
    ):
        with pytest.raises(kvpipe.Invalid, match="view: " + next(iter(change)).replace("strides", "(strides|a paged)")
                           .replace("block_size", "a paged")):
            kvpipe.View(region, 0, **{**good, **change})


def test_a_view_that_was_changed_is_named_by_its_place():
    region = type("Fake", (), {"id": 7})()
    views = [kvpipe.View(region, 0, kind="opaque", num_blocks=4, block_stride=64, content_bytes=64) for _ in range(3)]
    views[1].heads = -1
    with pytest.raises(kvpipe.Invalid, match=r"^views\[1\]: heads is -1: must be 0 to"):
        pack_views(views)


def test_errors_travel():
    """Between processes, too: multiprocessing pickles them."""
    error = pickle.loads(pickle.dumps(errors.Busy("key k is in use")))
    assert type(error) is kvpipe.Busy and str(error) == "key k is in use" and error.reason == kvpipe.Reason.BUSY


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_of_operations_travel(pair, protocol):
    """Without the operation, which stays where it is."""
    producer, consumer = pair
    producer.node.offer("k", [1, 2], tokens=32)
    take = consumer.node.take("k", [1, 3], token=b"0123456789abcdef", tokens=32)
    with pytest.raises(kvpipe.Denied) as caught:
        take.wait(60)
    error = pickle.loads(pickle.dumps(caught.value, protocol))
    assert type(error) is kvpipe.Denied and str(error) == str(caught.value) and error.reason == kvpipe.Reason.DENIED
    assert error.completion == take.completion._replace(op=None) == pickle.loads(pickle.dumps(take.completion, protocol))
    assert type(error.completion) is kvpipe.Completion and error.completion.failed[0] == kvpipe.Run(0, 1, 2)
    for copied in copy.copy(caught.value), copy.deepcopy(caught.value):  # here it is the same operation
        assert copied.completion == take.completion and copied.completion.op is take


@pytest.mark.parametrize("status, more, released", [
    (kvpipe.Status.DONE, False, True), (kvpipe.Status.DONE, True, False), (kvpipe.Status.FAILED, True, False),
    (kvpipe.Status.CANCELLED, False, True), (kvpipe.Status.QUARANTINED, False, False), (kvpipe.Status.RELEASED, False, True),
])
def test_memory_is_free_once_a_completion_says_so(status, more, released):
    raw = _abi.Completion(status=status, flags=_abi.C_MORE if more else 0)
    assert completion.read(raw, None).released is released
