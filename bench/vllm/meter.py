"""How much of an engine's CPU goes to its KV connector.

Inside an engine whose environment names a file (KVPIPE_METER), `install` has every connector that vLLM makes wrapped: each
call of one of its methods adds the CPU time of the calling thread to a number
in a shared file, and so does taking its metadata through pickle and back, which
is what a step does with it between scheduler and worker. Threads that begin
inside such a call (while the meter learns) are the connector's own, and all
they use counts too.

Outside, a Meter over the same file reads these numbers and what the kernel says
of the threads. An engine is one scheduler and one worker (no parallelism).
"""
import contextlib
import mmap
import os
import pathlib
import pickle
import struct
import sys
import time

_SIZE = 4096                    # of one role: scheduler first, worker second
_FIELDS = struct.Struct("=QQQQ")  # steps, calls, nanoseconds, process id
_LEARN, _COUNT, _TIDS = 48, 56, 64
_STEP = {"build_connector_meta", "bind_connector_metadata"}
ROLES = ("scheduler", "worker")


def _threads():
    return set(map(int, os.listdir("/proc/self/task")))


class _Counter:
    """The numbers of one role, in the process that makes them. One thread at a time calls a connector."""

    def __init__(self, path, role):
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 2 * _SIZE)
        self.at = _SIZE * ROLES.index(role)
        self.steps = self.calls = self.spent = 0
        self.inside = False
        self.own = set()
        self.floor = self._floor()

    def _floor(self):
        """What the two readings of the clock measure when nothing lies between."""
        took = []
        for _ in range(2000):
            begin = time.thread_time_ns()
            took.append(time.thread_time_ns() - begin)
        return sorted(took)[len(took) // 2]

    def publish(self):
        _FIELDS.pack_into(self.memory, self.at, self.steps, self.calls, self.spent, os.getpid())

    def timed(self, name, method):
        def call(*args, **kwargs):
            if self.inside:
                return method(*args, **kwargs)
            self.inside = True
            before = _threads() if self.memory[self.at + _LEARN] else None
            begin = time.thread_time_ns()
            try:
                result = method(*args, **kwargs)
                if name == "build_connector_meta":
                    pickle.loads(pickle.dumps(result, pickle.HIGHEST_PROTOCOL))
                return result
            finally:
                self.spent += max(0, time.thread_time_ns() - begin - self.floor)
                self.inside = False
                self.calls += 1
                self.steps += name in _STEP
                if before is not None:
                    self._learn(_threads() - before)
                self.publish()
        return call

    def _learn(self, fresh):
        for tid in fresh - self.own:
            struct.pack_into("=Q", self.memory, self.at + _TIDS + 8 * len(self.own), tid)
            self.own.add(tid)
        struct.pack_into("=Q", self.memory, self.at + _COUNT, len(self.own))

    def watch(self, connector):
        for name in dir(type(connector)):
            if not name.startswith("_") and callable(getattr(type(connector), name)):
                setattr(connector, name, self.timed(name, getattr(connector, name)))
        return connector


def create(path):
    """Makes the file of one engine. The meter learns until Meter.learned is called."""
    memory = bytearray(2 * _SIZE)
    memory[_LEARN] = memory[_SIZE + _LEARN] = 1
    pathlib.Path(path).write_bytes(memory)


def install():
    """In a server, before it makes its engine."""
    sys.path.extend(filter(None, os.environ.get("KVPIPE_BENCH_PATH", "").split(os.pathsep)))
    # Some connectors pin their process to the machine's last core, where on a small machine all others are then as well.
    os.sched_setaffinity = lambda pid, cpus: None
    path = os.environ.get("KVPIPE_METER")
    if not path:
        return
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    make = KVConnectorFactory.create_connector

    def create_connector(config, role, kv_cache_config):
        counter = _Counter(path, role.name.lower())
        return counter.watch(counter.timed("__init__", make)(config, role, kv_cache_config))

    KVConnectorFactory.create_connector = create_connector


class Meter:
    """The numbers of one engine, read from outside."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 2 * _SIZE)
        self._used = {}  # (process, thread) -> nanoseconds, when it was last seen

    def learned(self):
        """From now on only calls are measured, and threads that are known: listing threads takes time."""
        self._memory[_LEARN] = self._memory[_SIZE + _LEARN] = 0

    def read(self):
        """{"scheduler": (steps, seconds), "worker": (steps, seconds)} so far; subtract two readings."""
        return {role: self._role(i * _SIZE) for i, role in enumerate(ROLES)}

    def threads(self):
        """The names of the threads that belong to the connector, of either role."""
        return sorted(self._name(pid, tid) for at in (0, _SIZE) for pid, tid in self._tids(at))

    def _tids(self, at):
        pid = _FIELDS.unpack_from(self._memory, at)[3]
        count, = struct.unpack_from("=Q", self._memory, at + _COUNT)
        return [(pid, tid) for tid in struct.unpack_from(f"={count}Q", self._memory, at + _TIDS)]

    def _role(self, at):
        steps, _, spent, _ = _FIELDS.unpack_from(self._memory, at)
        return steps, (spent + sum(self._ran(pid, tid) for pid, tid in self._tids(at))) / 1e9

    def _ran(self, pid, tid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            self._used[pid, tid] = int(pathlib.Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0])
        return self._used.get((pid, tid), 0)  # of one that has ended, what it had used before; short-lived ones are lost

    @staticmethod
    def _name(pid, tid):
        try:
            return pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            return "(ended)"
