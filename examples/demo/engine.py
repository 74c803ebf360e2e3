"""One inference engine without the inference: a process with the sessions, memory and blocks of one.

It takes commands as JSON lines on stdin and answers on stdout, {"result": ...} or {"error": ..., "message": ...}, after
any number of {"event": ...}. Everything it does with kvpipe is what a connector inside a real engine would do.
"""

import json
import statistics
import sys
import time

import kvpipe
import numpy as np
from shape import BLOCK, LAYERS, Cache


PATIENCE = 60.0  # seconds; nothing takes a fraction of it, but on a machine that is busy with something else


class Engine:
    def __init__(self, emit):
        self._emit = emit
        self._ranks, self._caches, self._asks = [], [], None
        self._offers, self._takes = {}, {}

    def open(self, socket, engine, pool, tp=1, order="NHD"):
        """One worker session for each rank; with several ranks a scheduler's too, which asks for all of them."""
        for rank in range(tp):
            node = kvpipe.connect(socket, engine_id=engine, rank=(rank, 0), world=(tp, 1))
            self._ranks.append(node)
            self._caches.append(Cache(node, pool, tp, rank, order))
        self._asks = self._ranks[0] if tp == 1 else kvpipe.connect(socket, engine_id=engine, role="scheduler")
        return {"node": self._asks.name, "address": self._asks.advertise}

    def close(self):
        self._offers.clear()
        self._takes.clear()
        for cache in self._caches:
            cache.close()
        for node in [*self._ranks, self._asks]:
            node.close()
        self.__init__(self._emit)

    # ---- blocks

    def fill(self, seed, ids):
        for cache in self._caches:
            cache.fill(seed, np.array(ids, np.uint32))

    def wipe(self, byte=0):
        for cache in self._caches:
            cache.wipe(byte)

    def verify(self, seed, ids):
        ids = np.array(ids, np.uint32)
        wrong = sum(cache.wrong(seed, ids) for cache in self._caches)
        return {"wrong": wrong, "touched": sum(cache.touched(ids) for cache in self._caches)}

    def untouched(self, byte):
        """How many blocks are not what wipe(byte) wrote."""
        return sum(cache.touched([], byte) for cache in self._caches)

    # ---- hand-overs

    def offer(self, key, ids, sealed=True, lease=60.0, token=None):
        ids, token = np.array(ids, np.uint32), bytes.fromhex(token) if token else None
        offer = self._asks.offer(key, ids, tokens=len(ids) * BLOCK, sealed=sealed, lease=lease, token=token)
        self._offers[key] = offer
        return offer.token.hex()

    def offer_in_layers(self, key, ids, written):
        """Offers what is still being computed: so many of its layers are written."""
        offer = self._asks.offer(key, [], tokens=0, sealed=False, lease=60.0)
        offer.extend(np.array(ids, np.uint32), tokens=len(ids) * BLOCK, after=1 << 16, layered=True, sealed=True)
        self._asks.progress(1 << 16 | written)
        self._offers[key] = offer
        return offer.token.hex()

    def offered(self, key, timeout=PATIENCE):
        """Waits until the blocks of an offer are the engine's own again."""
        offer = self._offers.pop(key)
        try:
            offer.wait(timeout)
        finally:
            offer.wait_released(timeout)
            self._collect(offer.key)

    def withdraw(self, key, timeout=PATIENCE):
        offer = self._offers.pop(key)
        if not offer.withdraw(timeout):
            offer.wait_released(timeout)

    def take(self, key, token, ids, peer=None, show=False):
        """Takes, and returns the seconds from asking until every rank was told."""
        ids = np.array(ids, np.uint32)
        start = time.perf_counter()
        take = self._asks.take(
            key, ids, peer=peer, token=bytes.fromhex(token), tokens=len(ids) * BLOCK, timeout=PATIENCE, layered=show
        )
        for layer in range(LAYERS if show else 0):
            take.wait_layer(layer, PATIENCE)
            self._emit({"event": layer + 1})
        done = take.wait()
        seconds = time.perf_counter() - start
        self._collect(take.key)
        return {"seconds": seconds, "bytes": done.bytes, "ranks": len(self._ranks)}

    def begin(self, key, token, ids, peer=None, layers=1):
        """Starts a take and returns when its first layers are in place."""
        take = self._asks.take(
            key, np.array(ids, np.uint32), peer=peer, token=bytes.fromhex(token), tokens=len(ids) * BLOCK, timeout=2 * PATIENCE,
            layered=True,
        )
        self._takes[key] = take
        for layer in range(layers):
            take.wait_layer(layer, PATIENCE)

    def cancel(self, key):
        """Cancels in mid-transfer. When this returns, the blocks are the engine's own."""
        take = self._takes.pop(key)
        start = time.perf_counter()
        at_once = take.cancel(PATIENCE)
        take.wait_released(PATIENCE)
        return {"at_once": at_once, "seconds": time.perf_counter() - start, "state": take.completion.status.name}

    def finish(self, key):
        """Waits for a take that begin() started; then says how many blocks it may not use."""
        take = self._takes.pop(key)
        try:
            take.wait(2 * PATIENCE)
        except kvpipe.Error as error:
            take.wait_released(PATIENCE)
            return {"error": type(error).__name__, "message": str(error), "failed": len(take.failed_blocks)}
        return {"error": None}

    def _collect(self, key):
        """Each rank's session gets a completion of its own for what the scheduler asked."""
        if len(self._ranks) > 1:
            for node in self._ranks:
                self._await_completion(node)

    @staticmethod
    def _await_completion(node):
        import select

        with select.epoll() as poll:
            poll.register(node.fileno(), select.EPOLLIN)
            for _ in range(int(PATIENCE * 10)):
                found = node.poll()
                for completion in found:
                    if completion.error() is not None:
                        raise completion.error()
                if found:
                    return
                poll.poll(0.1)
        raise kvpipe.Timeout(f"a rank was not told within {PATIENCE} s")

    # ---- small ones

    def open_small(self, socket, engine, count):
        """One session with `count` blocks of 4 KiB."""
        node = kvpipe.connect(socket, engine_id=engine)
        region = node.alloc(count * 4096)
        node.set_layout(
            [
                kvpipe.View(
                    region, 0, num_blocks=count, block_stride=4096, block_size=16, heads=1, strides=(256, 256),
                    content_bytes=256,
                )
            ],
            {"model": "small"},
        )
        self._ranks, self._asks, self._small = [node], node, region

    def offer_small(self, count, token):
        data = np.frombuffer(self._small, np.uint64).reshape(count, 512)
        data[:] = np.arange(1, count + 1, dtype=np.uint64)[:, None]
        for i in range(count):
            key = f"small-{i}"
            self._offers[key] = self._asks.offer(key, [i], tokens=16, token=bytes.fromhex(token), lease=120.0)

    def take_small(self, count, token, peer=None, warm=50):
        """One at a time, from asking to done: p50 and p99 in microseconds."""
        secret, times = bytes.fromhex(token), []
        for i in range(count):
            start = time.perf_counter_ns()
            self._asks.take(f"small-{i}", [count - 1 - i], peer=peer, token=secret, tokens=16).wait(PATIENCE)
            times.append((time.perf_counter_ns() - start) / 1e3)
        data = np.frombuffer(self._small, np.uint64).reshape(count, 512)
        if not (data == np.arange(count, 0, -1, dtype=np.uint64)[:, None]).all():
            raise RuntimeError("a 4 KiB block arrived wrong")
        cuts = statistics.quantiles(times[warm:], n=100)
        return {"p50_us": statistics.median(times[warm:]), "p99_us": cuts[98], "count": count - warm}


def main():
    answers = sys.stdout
    sys.stdout = sys.stderr

    def emit(message):
        print(json.dumps(message), file=answers, flush=True)

    engine = Engine(emit)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            emit({"result": getattr(engine, command.pop("do"))(**command)})
        except Exception as error:
            emit({"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    main()
