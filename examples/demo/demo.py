#!/usr/bin/env python3
"""The KV of a long prompt goes from a prefill engine to a decode engine, through two daemons, and arrives.

Two daemons on this machine play two nodes. Everything is done by separate processes that use the Python package; the
numbers at the end are measured in this run, beside plain programs that move the same blocks. Needs about 4 GiB.
"""

import argparse
import contextlib
import pathlib
import secrets
import shutil
import signal
import sys
import tempfile
import time

import deaths
import references
import report
import restarts
import scenes
from cluster import Daemon, Engine, Failed
from shape import BLOCK, BLOCK_BYTES, LAYERS, draw

TOKENS = 8192
LONGEST = 40  # characters of a folder for the daemons': paths of unix sockets have a limit
SPARE = 16  # blocks in each layer that no list names: they must stay as they are


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=TOKENS, help="length of the prompt (default %(default)s: 1 GiB)")
    parser.add_argument("--seed", type=int, default=None, help="of contents and block ids (default: drawn)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of each kind (default %(default)s)")
    parser.add_argument("--json", default=str(pathlib.Path(__file__).resolve().parents[2] / "build/demo.json"))
    given = parser.parse_args()
    if given.tokens < BLOCK or given.tokens % BLOCK:
        parser.error(f"--tokens must be a multiple of {BLOCK}")
    return given


class Demo:
    def __init__(self, given, home):
        self.given, self.home, self.story = given, home, report.Story()
        self.seed = given.seed if given.seed is not None else secrets.randbits(30)
        self.count = given.tokens // BLOCK
        self.pool = self.count + SPARE
        self.source = draw(self.seed, self.pool, self.count)
        self.target = draw(self.seed + 1, self.pool, self.count)
        self.lists = references.write_lists(home / "lists", self.pool, self.source, self.target)
        self.rows, self.small, self.plain, self.processes, self.restarts = [], [], {}, [], {}

    def daemon(self, node, *peers):
        daemon = Daemon(self.home, node, self.home / "ca", peers)
        self.processes.append(daemon)
        return daemon

    def engine(self, name):
        engine = Engine(name)
        self.processes.append(engine)
        return engine

    def stop(self):
        """Engines before daemons, and all of them; what went wrong last is what counts."""
        if self.processes:
            try:
                self.processes.pop().stop()
            finally:
                self.stop()

    def reference(self, program, kinds):
        reference = references.Reference(program, kinds, self.lists)
        self.processes.append(reference)
        return reference

    def add(self, name, seconds, moved, piece=BLOCK_BYTES):
        """A row of the table: median seconds for so many bytes, in descriptors of `piece` bytes."""
        self.rows.append({"name": name, "bytes": moved, "descriptors": moved // piece, "seconds": seconds,
                          "gb_per_s": moved / seconds / 1e9})

    def shares(self):
        for row in self.rows:
            row["of_memcpy"] = row["gb_per_s"] / self.plain["memcpy"]["gb_per_s"]
            row["of_tcp"] = row["gb_per_s"] / self.plain["tcp"]["gb_per_s"]

    def run(self):
        start = time.monotonic()
        scenes.start(self)
        scenes.big(self, "tcp")
        scenes.cancel(self)
        deaths.killed(self)
        deaths.outlived(self)
        restarts.restarted(self)
        scenes.big(self, "local")
        scenes.reshape(self)
        scenes.explain(self)
        scenes.small(self)
        self.story.heading("Stopping the daemons")
        self.stop()
        self.shares()
        print()
        report.table(self.rows)
        report.plain(self.plain.values())
        report.latency(self.small)
        report.write(self.given.json, {
            "tokens": self.given.tokens, "layers": LAYERS, "block_bytes": BLOCK_BYTES, "seed": self.seed,
            "seconds": time.monotonic() - start, "references": self.plain, "handovers": self.rows,
            "small": self.small, "restarts": self.restarts,
        })


def main():
    given = options()
    for ends in (signal.SIGTERM, signal.SIGHUP):  # a terminal that is closed; a daemon would take it for a wish to reload
        if signal.getsignal(ends) != signal.SIG_IGN:
            signal.signal(ends, signal.default_int_handler)
    home = pathlib.Path(tempfile.mkdtemp(prefix="kvpipe-demo-", dir=None if len(tempfile.gettempdir()) <= LONGEST else "/tmp"))
    demo = Demo(given, home)
    try:
        try:
            demo.run()
        except KeyboardInterrupt:
            with contextlib.suppress(Failed):  # a daemon that was interrupted, too, ends at once when it is told a second time
                demo.stop()
            raise
        finally:
            demo.stop()
    except Failed as error:
        print(f"\ndemo: FAILED: {error}\n(logs of the daemons: {home}/*/log)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(home)
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    shutil.rmtree(home)
    print("demo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
