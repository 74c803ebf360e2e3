"""The scene of the demo in which the daemons are killed, and the engines go on as if nothing had been."""

import secrets
import time

from cluster import Failed, until
from scenes import expect
from shape import LAYERS


def restarted(demo):
    """kill -9 of both daemons, started again: a take that waited is served, and what was offered can still be taken."""
    demo.story.heading("Both daemons are killed (kill -9) and started again; the engines keep running")
    prefill, decode, blocks = demo.prefill, demo.decode, demo.count * LAYERS
    source, target, seed = demo.source.tolist(), demo.target.tolist(), demo.seed + 90
    token = secrets.token_hex(16)
    prefill.call("fill", seed=seed, ids=source)
    standing = prefill.call("offer", key="standing", ids=source)
    decode.call("wipe")
    decode.call("begin", key="waiting", token=token, ids=target, peer=demo.peer, layers=0)
    until(lambda: _known(demo.near, "transfers", "waiting"), "prefill-node knows of the take that waits")
    again = [_again(demo, demo.near, prefill), _again(demo, demo.far, decode)]
    start = time.monotonic()
    prefill.call("offer", key="waiting", ids=source, token=token)
    found = decode.call("finish", key="waiting")
    if found["error"] is not None:
        raise Failed(f"the take that waited for two daemons: {found}")
    served = time.monotonic() - start
    expect(decode.call("verify", seed=seed, ids=target), blocks)
    prefill.call("offered", key="waiting")
    demo.story.line(f"the take that waited is served {served:.1f} s after its offer: {blocks:,} blocks right")
    decode.call("wipe")
    done = decode.call("take", key="standing", token=standing, ids=target, peer=demo.peer)
    expect(decode.call("verify", seed=seed, ids=target), blocks)
    prefill.call("offered", key="standing")
    demo.story.line(f"verified: {blocks:,} blocks right of an offer from before the restart")
    demo.add("tcp, after both restarts", done["seconds"], done["bytes"])
    demo.restarts = {"daemons": again, "served_seconds": served}


def _again(demo, daemon, engine):
    """One daemon killed and started; waits until the session of the same process is back."""
    old, pid = daemon.process.pid, engine.process.pid
    daemon.kill()
    daemon.start()
    start = time.monotonic()
    until(lambda: pid in [session["pid"] for session in daemon.all("sessions")], f"{engine.name} is back at {daemon.node}")
    back = time.monotonic() - start
    demo.story.line(f"{daemon.node}: was pid {old}, is pid {daemon.process.pid}; {engine.name} is pid {pid} as before, and back after {back * 1e3:.0f} ms")
    return {"node": daemon.node, "before": old, "after": daemon.process.pid, "engine": pid, "back_seconds": back}


def _known(daemon, what, key):
    return [one for one in daemon.all(what) if one["key"] == key]
