"""Hand-overs between engines of different shapes, through real daemons. The planner has property tests of its own."""

import kvpipe
import pytest
from engines import idle

pytest.importorskip("numpy")
from shapes import HEADS, LAYERS, Side, tensor  # noqa: E402

HYBRID = {layer: layer % 2 for layer in range(LAYERS)}
HOLE = kvpipe.NO_BLOCK


@pytest.fixture(params=["local", "tcp"])
def sockets(request):
    near, far = request.getfixturevalue("near"), request.getfixturevalue("far")
    there = far if request.param == "tcp" else near
    yield near.socket, there.socket, None if there is near else "near"
    idle(near), idle(far)


@pytest.mark.parametrize(
    "producer, consumer, both",
    [
        ({}, {}, {}),
        ({"tp": 2}, {"tp": 4, "order": "HND"}, {}),
        ({"tp": 4, "order": "HND"}, {"tp": 2}, {}),
        ({"pp": 2}, {}, {}),
        ({}, {"pp": 4}, {}),
        ({"tp": 2, "pp": 2}, {"tp": 4}, {"parts": ("k", "v")}),
        ({"tp": 2}, {"tp": 4}, {"heads": 1}),  # MLA: replicas
        ({"tp": 4}, {"tp": 2}, {"heads": 1}),
        ({"tp": 4}, {"tp": 1}, {"heads": 2}),  # more ranks than heads
        ({"block_size": 16}, {"block_size": 32}, {}),
        ({"block_size": 32, "order": "HND"}, {"block_size": 8, "tp": 2}, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("tokens", [(0, 90), (37, 90)], ids=["all", "missing"])
def test_shapes(sockets, producer, consumer, both, tokens):
    near, far, peer = sockets
    heads = both.get("heads", HEADS)
    kv = {part: tensor(96, heads, seed) for seed, part in enumerate(both.get("parts", ("kv",)))}
    with Side(near, "p", **producer, **both) as p, Side(far, "c", **consumer, **both) as c:
        have, want = p.ids(0, 96, 1), c.ids(*tokens, 2)
        p.write(have, 0, 96, kv)
        offer = p.node.offer("k", have, tokens=96)
        done = c.node.take("k", want, peer=peer, token=offer.token, tokens=tokens).wait(60)
        c.check(want, *tokens, kv)
        assert done.bytes == sum(r.heads * len(r.layers) for r in c.ranks) * 8 * (tokens[1] - tokens[0]) * len(kv)
        offer.wait(60)


def test_sliding_windows(sockets):
    """The second group holds the last blocks alone, on both sides; one that the producer lacks fails by itself."""
    near, far, peer = sockets
    kv = {"kv": tensor(80)}
    with Side(near, "p", groups=HYBRID) as p, Side(far, "c", groups=HYBRID, tp=2) as c:
        have, want = [[0, 1, 2, 3, 4], [HOLE, HOLE, HOLE, 3, 4]], [[9, 8, 7, 6, 5], [HOLE, HOLE, HOLE, 11, 10]]
        p.write(have, 0, 80, kv)
        offer = p.node.offer("k", have, tokens=80, consumers=2)
        c.node.take("k", want, peer=peer, token=offer.token, tokens=80).wait(60)
        c.check(want, 0, 80, kv)
        more = [[9, 8, 7, 6, 5], [HOLE, HOLE, 12, 11, 10]]
        take = c.node.take("k", more, peer=peer, token=offer.token, tokens=80)
        with pytest.raises(kvpipe.NotFound, match="lacks"):
            take.wait(60)
        take.wait_released(60)
        assert take.failed_blocks == [[], [12]]
        c.check(want, 0, 80, kv)
        offer.withdraw()
