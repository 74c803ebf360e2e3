"""The scenes of the demo in which a process is killed: what that costs, and what it does not."""

from cluster import Failed, until
from scenes import expect
from shape import BLOCK_BYTES, LAYERS, draw


def killed(demo):
    """kill -9 of a producer: its taker is told and has its blocks back, and the next producer starts clean."""
    demo.story.heading("A producer is killed (kill -9)")
    half = max(min(demo.count // 2, 64), 1)
    ids, seed, spot = list(range(2 * half)), demo.seed + 70, demo.target.tolist()[: 2 * half]
    victim = _victim(demo, seed, ids)
    token = victim.call("offer", key="unfinished", ids=ids[:half], sealed=False)
    demo.decode.call("begin", key="unfinished", token=token, ids=spot, peer=demo.peer, layers=0)
    until(lambda: _moved(demo.far, "unfinished") >= half * LAYERS * BLOCK_BYTES, "half a prompt is over")
    victim.kill()
    found = demo.decode.call("finish", key="unfinished")
    if found["error"] != "PeerGone" or found["failed"] != len(spot):
        raise Failed(f"the take of a killed producer's unfinished prompt: {found}")
    demo.story.line(f"half a prompt had moved; the taker is told {found['error']}: {found['message']}")
    demo.story.line(f"{found['failed']} block ids must not be read, and are its own again")
    until(lambda: not [s for s in demo.near.all("sessions") if s["engine"] == "prefill-1"], "its session is gone")
    demo.decode.call("wipe")
    heir = _victim(demo, seed + 1, ids)
    token = heir.call("offer", key="finished", ids=ids)
    demo.decode.call("take", key="finished", token=token, ids=spot, peer=demo.peer)
    expect(demo.decode.call("verify", seed=seed + 1, ids=spot), len(spot) * LAYERS)
    demo.story.line(f"a new engine of that name hands over to the same blocks: {len(spot) * LAYERS:,} blocks right")
    heir.stop()


def outlived(demo):
    """kill -9 of a producer that had finished: what it offered is still there to take."""
    demo.story.heading("A producer is killed (kill -9) after its prompt was finished")
    count = min(demo.count, 128)
    ids, seed, spot = draw(demo.seed + 80, 2 * count, count).tolist(), demo.seed + 81, demo.target.tolist()[:count]
    blocks = count * LAYERS
    victim = demo.engine("prefill-2")
    victim.call("open", socket=demo.near.socket, engine="prefill-2", pool=2 * count)
    victim.call("fill", seed=seed, ids=ids)
    token = victim.call("offer", key="outlived", ids=ids)
    victim.kill()
    until(lambda: _orphaned(demo.near) >= blocks * BLOCK_BYTES, "the daemon has what its producer left behind")
    demo.story.line(f"pid {victim.process.pid} is gone; of its {2 * blocks * BLOCK_BYTES:,} bytes prefill-node keeps {_orphaned(demo.near):,}")
    demo.decode.call("wipe")
    done = demo.decode.call("take", key="outlived", token=token, ids=spot, peer=demo.peer)
    expect(demo.decode.call("verify", seed=seed, ids=spot), blocks)
    until(lambda: _orphaned(demo.near) == 0, "the rest of its memory is given back")
    demo.story.line(f"verified: {blocks:,} blocks right, taken on decode-node from a killed producer; nothing is kept now")
    demo.add("tcp, of a killed producer", done["seconds"], done["bytes"])


def _victim(demo, seed, ids):
    engine = demo.engine("prefill-1")
    engine.call("open", socket=demo.near.socket, engine="prefill-1", pool=len(ids))
    engine.call("fill", seed=seed, ids=ids)
    return engine


def _orphaned(daemon):
    return daemon.status()["orphaned_bytes"]


def _moved(daemon, key):
    return sum(t["moved_bytes"] for t in daemon.all("transfers") if t["key"] == key)
