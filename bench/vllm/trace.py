#!/usr/bin/env python3
"""Where each millisecond of a hand-over goes: one prompt from a prefill to a decode server, as a table.

Of --count hand-overs through real servers on this machine it shows the one of median length, or the slowest.
"""
import argparse
import collections
import contextlib
import datetime
import json
import pathlib
import shutil
import tempfile
import time

import machine
import pairs


LOG = '[log]\nlevel = "debug"\nformat = "json"\n'


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1000, help="of the prompt (default %(default)s)")
    parser.add_argument("--count", type=int, default=15, help="hand-overs (default %(default)s)")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2, help="daemons: one for both servers, or one each")
    parser.add_argument("--slowest", action="store_true", help="show the slowest, not the one of median length")
    return parser.parse_args()


def nanoseconds(text):
    """Of a time in UTC as the daemon logs it, which no datetime holds."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    at = datetime.datetime.fromisoformat(seconds).replace(tzinfo=datetime.timezone.utc)
    return int(at.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))


def daemon_events(daemon):
    """What the daemon logged of requests."""
    for line in list(daemon.log):
        record = json.loads(line)
        if record["msg"].startswith(("take ", "offer ", "watch")):
            yield {"at": nanoseconds(record["time"]), "who": daemon.node, "what": f"daemon: {record['msg']}"}


def collect(path, daemons):
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for daemon in daemons:
        events += daemon_events(daemon)
    return events


def hand_over(pair, prompt):
    """When it began, P's answer, D's first token; wall clock in nanoseconds."""
    begin, offset = time.time_ns(), time.time_ns() - time.monotonic_ns()
    _, more, answered = pair.prefilled(prompt)
    _, times = pair.d.stream(prompt, 2, **more)
    return begin, int(answered * 1e9) + offset, int(times[0] * 1e9) + offset


def show(spans, events, given):
    spans = sorted(spans, key=lambda span: span[2] - span[1])
    took = [(first - answered) / 1e6 for _, answered, first in spans]
    begin, answered, first = spans[-1 if given.slowest else len(spans) // 2]
    rows = [(answered, "client", "**prefill's answer**"), (first, "client", "**decode's first token**")]
    rows += [(e["at"], e["who"], e["what"]) for e in events if begin <= e["at"] <= first]
    rows.sort()
    print(f"{given.tokens} tokens, {given.nodes} daemon(s); milliseconds from the prefill server's answer. {len(took)} hand-overs: "
          f"{took[0]:.1f} to {took[-1]:.1f}, median {took[len(took) // 2]:.1f}\n")
    print("| ms | + | where | what |\n|---:|---:|---|---|")
    last = None
    for at, who, what in rows:
        step = "" if last is None else f"{(at - last) / 1e6:.2f}"
        print(f"| {(at - answered) / 1e6:.2f} | {step} | {who} | {what} |")
        last = at


def main():
    given = options()
    print(machine.line(machine.report()) + "\n")
    home = pathlib.Path(tempfile.mkdtemp(prefix="kvtrace", dir="/tmp"))
    try:
        with contextlib.ExitStack() as stack:
            parent = pairs.zygote(stack, "tracer")
            pair = pairs.Pair(pairs.KVPIPE, parent, home, stack, metered=False, nodes=given.nodes, config=LOG,
                              env={"KVPIPE_TRACE": str(home / "trace")})
            for daemon in pair.daemons:
                daemon.log = collections.deque()
            pair.open()
            prompts = pairs.Prompts()
            for _ in range(5):
                pair.hand_over(prompts.draw(given.tokens))
            spans = [hand_over(pair, prompts.draw(given.tokens)) for _ in range(given.count)]
            events = collect(home / "trace", pair.daemons)
        show(spans, events, given)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
