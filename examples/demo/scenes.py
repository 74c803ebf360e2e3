"""The scenes of the demo in which nobody dies, each one thing that has to work."""

import secrets
import statistics

import references
from cluster import Failed
from shape import BLOCK_BYTES, LAYERS, draw

SMALL = 1050  # hand-overs of 4 KiB, the first 50 not counted
LONE = 0xA5  # what the engine writes into blocks that it got back


def start(demo):
    demo.story.heading("Two daemons, with a CA of their own")
    demo.near = demo.daemon("prefill-node")
    demo.far = demo.daemon("decode-node", f"prefill-node={demo.near.address}")
    demo.story.line(f"prefill-node listens on {demo.near.address}; decode-node knows it by name")
    demo.story.line("mutual TLS between them; data links plain, as they share this machine")


def _engines(demo, kind):
    """A prefill and a decode process; over local both are on one node."""
    prefill, decode = demo.engine("prefill"), demo.engine("decode")
    prefill.call("open", socket=demo.near.socket, engine="prefill-0", pool=demo.pool)
    decode.call("open", socket=(demo.far if kind == "tcp" else demo.near).socket, engine="decode-0", pool=demo.pool)
    demo.prefill, demo.decode, demo.peer = prefill, decode, "prefill-node" if kind == "tcp" else None
    return prefill, decode


def expect(found, blocks):
    if found["wrong"] or found["touched"]:
        raise Failed(f"{found['wrong']} of {blocks} blocks arrived wrong, {found['touched']} others were touched")


def big(demo, kind):
    """The whole prompt: shown once with its layers, verified, then measured, and verified again."""
    if kind == "local":
        demo.prefill.stop()
        demo.decode.stop()
    blocks, source, target = demo.count * LAYERS, demo.source.tolist(), demo.target.tolist()
    where = "tcp, between the daemons" if kind == "tcp" else "local, within one daemon"
    demo.story.heading(f"{blocks:,} blocks of {BLOCK_BYTES // 1024} KiB over {where}")
    prefill, decode = _engines(demo, kind)
    program = ("ref-tcp", references.TCP) if kind == "tcp" else ("ref-memcpy", references.MEMCPY)
    reference = demo.reference(*program)
    times = []
    for turn in range(demo.given.rounds + 1):
        key, seed, checked = f"{kind}-{turn}", demo.seed + 10 + turn, turn in (0, demo.given.rounds)
        if checked:
            prefill.call("fill", seed=seed, ids=source)
            decode.call("wipe")
        token = prefill.call("offer", key=key, ids=source)
        bar = demo.story.bar(kind, LAYERS, "layers") if turn == 0 else None
        done = decode.call("take", key=key, token=token, ids=target, peer=demo.peer, show=turn == 0, on_event=bar)
        prefill.call("offered", key=key)
        if checked:
            expect(decode.call("verify", seed=seed, ids=target), blocks)
            when = f" after {turn} more hand-overs" if turn > 0 else ""
            demo.story.line(f"verified{when}: {blocks:,} blocks right, {LAYERS * (demo.pool - demo.count)} others untouched")
        if turn > 0:
            times.append(done["seconds"])
            reference.round()
    reference.stop()
    demo.plain["tcp" if kind == "tcp" else "memcpy"] = reference.best()
    demo.add(f"{kind}, {done['bytes'] / 2**30:.3g} GiB", statistics.median(times), done["bytes"])
    demo.story.line(f"time to done: {', '.join(f'{t * 1e3:.0f} ms' for t in times)}")


def cancel(demo):
    """Cancelled after the first layer, reused at once: no byte lands after that."""
    demo.story.heading("A take is cancelled in mid-transfer, and its blocks are used again at once")
    prefill, decode = demo.prefill, demo.decode
    # Its last layer is never written: no take of it can be done before it is cancelled.
    token = prefill.call("offer_in_layers", key="cancelled", ids=demo.source.tolist(), written=LAYERS - 1)
    decode.call("begin", key="cancelled", token=token, ids=demo.target.tolist(), peer=demo.peer)
    done = decode.call("cancel", key="cancelled")
    decode.call("wipe", byte=LONE)
    prefill.call("withdraw", key="cancelled")
    if done["state"] != "CANCELLED":
        raise Failed(f"a take that could not be done ended {done['state']}")
    # Another hand-over over the same links: room for a late byte, were there one.
    one = draw(demo.seed + 7, demo.pool, 1).tolist()
    again = prefill.call("offer", key="after", ids=one)
    other = demo.engine("decode-1")
    other.call("open", socket=demo.far.socket, engine="decode-1", pool=1)
    other.call("take", key="after", token=again, ids=[0], peer=demo.peer)
    prefill.call("offered", key="after")
    other.stop()
    late = decode.call("untouched", byte=LONE)
    if late:
        raise Failed(f"{late} blocks were written after they had been given back")
    word = "at once" if done["at_once"] else "after RELEASED"
    demo.story.line(f"{done['state']}, blocks free {word}, {done['seconds'] * 1e3:.1f} ms after asking; no late byte")


def reshape(demo):
    """Two ranks that keep tokens first hand over to four that keep heads first."""
    demo.story.heading("TP 2 to TP 4, tokens first (NHD) to heads first (HND)")
    demo.prefill.stop()
    demo.decode.stop()
    count = min(demo.count, 128)
    pool = count + 4
    source, target = (draw(demo.seed + i, pool, count).tolist() for i in (20, 21))
    prefill, decode = demo.engine("prefill-tp2"), demo.engine("decode-tp4")
    prefill.call("open", socket=demo.near.socket, engine="prefill-tp2", pool=pool, tp=2, order="NHD")
    decode.call("open", socket=demo.far.socket, engine="decode-tp4", pool=pool, tp=4, order="HND")
    times = []
    for turn in range(demo.given.rounds):
        prefill.call("fill", seed=demo.seed + 30 + turn, ids=source)
        decode.call("wipe")
        token = prefill.call("offer", key=f"tp-{turn}", ids=source)
        done = decode.call("take", key=f"tp-{turn}", token=token, ids=target, peer="prefill-node")
        prefill.call("offered", key=f"tp-{turn}")
        expect(decode.call("verify", seed=demo.seed + 30 + turn, ids=target), count * LAYERS * 4)
        times.append(done["seconds"])
    demo.story.line(f"verified: {count * LAYERS * 4:,} blocks on {done['ranks']} ranks, each head where it belongs")
    # Tokens-first to heads-first moves one token of one head at a time: 512 bytes.
    demo.add("tcp, TP 2 NHD to TP 4 HND", statistics.median(times), done["bytes"], 512)
    prefill.stop()
    decode.stop()


def explain(demo):
    demo.story.heading("kvpipectl explain prefill-node, asked on decode-node")
    demo.story.line(demo.far.ask("explain", "prefill-node"))


def small(demo):
    demo.story.heading("4 KiB hand-overs, one at a time")
    for kind in ("local", "tcp"):
        token = secrets.token_hex(16)
        prefill, decode = demo.engine("small-prefill"), demo.engine("small-decode")
        prefill.call("open_small", socket=demo.near.socket, engine=f"small-p-{kind}", count=SMALL)
        decode.call("open_small", socket=(demo.far if kind == "tcp" else demo.near).socket, engine=f"small-d-{kind}",
                    count=SMALL)
        prefill.call("offer_small", count=SMALL, token=token)
        found = decode.call("take_small", count=SMALL, token=token, peer="prefill-node" if kind == "tcp" else None)
        demo.small.append({"name": kind, **found})
        demo.story.line(f"{kind}: {found['count']} of them, right")
        prefill.stop()
        decode.stop()
