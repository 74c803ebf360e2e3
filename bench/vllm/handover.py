#!/usr/bin/env python3
"""Holds kvpipe's vLLM connector against NixlConnector and ExampleConnector, in one run on this machine's CPU.

Six servers of one tiny model: a prefill and a decode server for each connector. They take turns. Measured are the time
from the prefill server's answer to the decode server's first token, and the CPU that the connector takes from its engine.
"""
import argparse
import contextlib
import pathlib
import shutil
import sys
import tempfile
import time

import client
import machine
import pairs
import rows

LENGTHS = (500, 1900)
PARTS = 4  # of a round


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nixl", default="", help="folder where pip has put nixl, when it is not installed")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds at most (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=600, help="from the third on, no round begins after this (default %(default)s)")
    parser.add_argument("--count", type=int, default=24, help="hand-overs of each length in each of the four parts of a round (default %(default)s)")
    parser.add_argument("--only", nargs="+", default=[pairs.KVPIPE, pairs.NIXL, pairs.EXAMPLE], metavar="CONNECTOR")
    parser.add_argument("--json", default="build/bench-vllm.json")
    given = parser.parse_args()
    for name in given.only:
        if name not in (pairs.KVPIPE, pairs.NIXL, pairs.EXAMPLE):
            parser.error(f"--only: {name} is none of kvpipe, NixlConnector, ExampleConnector")
    return given


class Samples:
    """What one connector was measured at: a list for each quantity, an entry for each round.

    A round is several parts, between which the other connectors have their turns: what disturbs the machine for a while meets
    all of them, and a percentile has as many hand-overs under it as it needs.
    """

    def __init__(self, pair):
        self.pair = pair
        self.of = {}
        self._times, self._cpu = {}, {}  # of the parts of this round

    def add(self, what, value):
        self.of.setdefault(what, []).append(value)

    def _spend(self, what, run, per_step):
        """Connector CPU of both engines while run() lasts, per step or per request that it returns."""
        before = [m.read() for m in self.pair.meters]
        count = run()
        spent = steps = 0
        for old, meter in zip(before, self.pair.meters):
            new = meter.read()
            spent += sum(new[role][1] - old[role][1] for role in new)
            steps += new["scheduler"][0] - old["scheduler"][0]
        self._spent(what, spent, steps if per_step else count)

    def _spent(self, what, seconds, count):
        total = self._cpu.setdefault(what, [0, 0])
        total[0] += seconds
        total[1] += count

    def part(self, prompts, given):
        for length in LENGTHS:
            times = self._times.setdefault(length, [])

            def hand_overs():
                times.extend(self.pair.hand_over(prompts.draw(length)) * 1e3 for _ in range(given.count))
                return given.count

            self._spend(f"cpu per request, {length}", hand_overs, per_step=False)
            self.pair.tidy()
        self._spend("cpu per idle step", lambda: self.pair.d.stream(prompts.draw(32), 250) and 0, per_step=True)
        self.pair.tidy()
        self.held(prompts)

    def ends(self):
        """The round is over: an entry for each quantity, in milliseconds and, of CPU, in microseconds."""
        for length, times in self._times.items():
            self.add(f"p50, {length}", rows.percentile(times, 50))
            self.add(f"p99, {length}", rows.percentile(times, 99))
        for what, (seconds, count) in self._cpu.items():
            self.add(what, seconds / count * 1e6)
        self._times, self._cpu = {}, {}

    def held(self, prompts):
        """Steps of a prefill server that holds a finished prompt which nobody has pulled yet."""
        if self.pair.name == pairs.EXAMPLE:
            return  # it holds none
        prompt = prompts.draw(64)
        _, more, _ = self.pair.prefilled(prompt)
        # The decode server is busy with another request meanwhile: an event that takes as long as it takes.
        before = self.pair.meters[0].read()
        after = before
        while after["scheduler"][0] == before["scheduler"][0]:  # a server that yields between looks may be kept from all of them
            self.pair.d.stream(prompts.draw(32), 250)
            after = self.pair.meters[0].read()
        spent = sum(after[role][1] - before[role][1] for role in after)
        self._spent("cpu per step that holds a prompt", spent, after["scheduler"][0] - before["scheduler"][0])
        self.pair.handed += len(prompt)
        self.pair.d.complete(prompt, 1, **more)


def table(measured):
    """Rows: kvpipe against each other connector."""
    ours, others = measured.get(pairs.KVPIPE), [s for name, s in measured.items() if name != pairs.KVPIPE]

    def series(samples, what, unit):
        return rows.series(samples.pair.name, unit, samples.of[what])

    quantities = [(f"first token {q}, {length} tokens", f"{q}, {length}", "ms") for length in LENGTHS for q in ("p50", "p99")]
    quantities += [(f"connector CPU/request, {length} tokens", f"cpu per request, {length}", "us") for length in LENGTHS]
    quantities += [("connector CPU/step, idle", "cpu per idle step", "us"),
                   ("connector CPU/step, holding a prompt", "cpu per step that holds a prompt", "us")]
    for title, what, unit in quantities:
        for other in others:
            if what not in other.of:
                continue
            if ours is None:
                yield rows.report(f"{title}", series(other, what, unit), note=other.pair.name)
            else:
                yield rows.against(f"{title}", series(ours, what, unit), series(other, what, unit)) | {"note": other.pair.name}


def uncounted(pair, prompts, count):
    for length in LENGTHS:
        for _ in range(count):
            pair.hand_over(prompts.draw(length))


def warm_up(pair, prompts):
    pair.open()
    uncounted(pair, prompts, 6)
    pair.d.stream(prompts.draw(32), 50)
    for meter in pair.meters:
        meter.learned()
    pair.stop()


def run(given, home, report):
    prompts = pairs.Prompts()
    with contextlib.ExitStack() as stack:
        zygote = pairs.zygote(stack)
        running = [pairs.Pair(name, zygote, home, stack, given.nixl) for name in given.only]
        for pair in running:
            warm_up(pair, prompts)
        measured = {pair.name: Samples(pair) for pair in running}
        order = list(measured.values())
        begin = time.monotonic()
        while report["rounds"] < given.rounds and (report["rounds"] < 2 or time.monotonic() < begin + given.seconds):
            report["rounds"] += 1
            for _ in range(PARTS):
                for samples in order:
                    samples.pair.wake()
                    uncounted(samples.pair, prompts, 1)  # who was stopped for a while first does what was due meanwhile
                    samples.part(prompts, given)
                    samples.pair.stop()
                order = order[1:] + order[:1]
            for samples in order:
                samples.ends()
        for pair in running:
            pair.wake()
            report["loaded"][pair.name] = round(pair.loaded(), 3)
            report["threads"][pair.name] = [meter.threads() for meter in pair.meters]
        return list(table(measured))


def main():
    given = options()
    report = machine.report(rounds=0, loaded={}, threads={})
    print(machine.line(report), flush=True)
    # ExampleConnector writes files: in memory, so that no disk slows it down. Paths of unix sockets are short.
    home = pathlib.Path(tempfile.mkdtemp(prefix="kvbench", dir="/dev/shm"))
    try:
        report["rows"] = run(given, home, report)
    except (client.Failed, AssertionError) as error:
        sys.exit(f"bench-vllm: {error}")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(rows.head())
    for row in report["rows"]:
        print(rows.line(row))
    report["targets"], report["short"] = rows.summary(report["rows"])
    machine.write(report, given.json)
    print(f"bench: {report['targets']} targets, {report['short']} short")


if __name__ == "__main__":
    main()
