"""What the machine gives to plain programs that move the very same list of blocks, round for round beside ours."""

import json
import statistics
import subprocess

from cluster import Failed, binary
from shape import BLOCK_BYTES, LAYERS, descriptors

MEMCPY = {"memcpy, 1 thread": "threads=1"}
TCP = {
    "plain TCP, 1 stream, waitall": "streams=1 mode=waitall",
    "plain TCP, 2 streams, waitall": "streams=2 mode=waitall",
    "plain TCP, 2 streams, rcvlowat": "streams=2 mode=rcvlowat",
}


class Reference:
    """One of bench/ref's programs, waiting for orders; `kinds` are what it can be told, by name."""

    def __init__(self, program, kinds, lists):
        self._kinds, self._rates = kinds, {name: [] for name in kinds}
        self._program = program
        self._process = subprocess.Popen(
            [binary(program), "--serve", *lists], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()
        for order in kinds.values():  # the first round of each is not counted
            self._run(order)

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"{self._program} ended: see its message above")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self._program}: {answer['error']}")
        return answer

    def _run(self, order):
        self._process.stdin.write(f"run {order}\n")
        self._process.stdin.flush()
        return self._answer()["gb_per_s"]

    def round(self):
        for name, order in self._kinds.items():
            self._rates[name].append(self._run(order))

    def best(self):
        """The kind with the highest median."""
        medians = {name: statistics.median(rates) for name, rates in self._rates.items()}
        name = max(medians, key=medians.get)
        return {"name": name, "gb_per_s": medians[name], "rounds": self._rates[name]}

    def stop(self):
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait(20)
        self._process.stdout.close()


def write_lists(path, pool, source, target):
    """The hand-over's descriptors for a program's command line."""
    first, second = descriptors(pool, source, target)
    path.write_bytes(first.tobytes() + second.tobytes())
    return ["--block", str(BLOCK_BYTES), "--blocks", str(len(first)), "--pool", str(pool * LAYERS), "--list", str(path)]
