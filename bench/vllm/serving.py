#!/usr/bin/env python3
"""What disaggregated prefill by kvpipe does for users, against chunked prefill on as many instances.

By default it starts both on this machine, with a tiny model: a prefill and a decode server with a daemon, and two servers
that do both, each pair behind a proxy. With --target it measures what runs already, on whatever hardware:

    serving.py --target kvpipe=http://a:8000 --target chunked=http://b:8000 --model NAME --rates 2 4 6 8 \\
               --input 1024 --output 6 --requests 100 --vocabulary 100000
"""
import argparse
import contextlib
import pathlib
import shutil
import sys
import tempfile

import load
import machine
import pairs
import plot
import rows


CHUNKED = ["--max-num-batched-tokens", "512"]  # a prompt beside tokens of others, piece by piece


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", default=[], metavar="NAME=URL", help="measure this; may be repeated")
    parser.add_argument("--model", default="tiny", help="the model's name in requests")
    parser.add_argument("--rates", type=float, nargs="+", default=[2, 4, 6, 8], help="requests a second (default %(default)s)")
    parser.add_argument("--requests", type=int, default=48, help="at each rate (default %(default)s)")
    parser.add_argument("--input", type=int, default=1024, help="tokens of a prompt (default %(default)s)")
    parser.add_argument("--output", type=int, default=24, help="tokens of an answer (default %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=1000, help="prompts are of token ids below this (default %(default)s)")
    parser.add_argument("--json", default="build/bench-serving.json")
    given = parser.parse_args()
    given.target = [target.partition("=")[::2] for target in given.target]
    if not all(name and url for name, url in given.target):
        parser.error("--target: give NAME=URL")
    return given


@contextlib.contextmanager
def awake(servers):
    """The others are stopped meanwhile: what is measured has the machine for itself."""
    pairs.signal_all(servers, pairs.signal.SIGCONT)
    yield
    pairs.signal_all(servers, pairs.signal.SIGSTOP)


def here(stack):
    """[(name, URL of a proxy, servers behind it)], ready and stopped."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="kvbench", dir="/dev/shm"))
    stack.callback(shutil.rmtree, home, True)
    parent = pairs.zygote(stack)
    split = pairs.Pair(pairs.KVPIPE, parent, home, stack, metered=False)
    both = [pairs.serve(parent, stack, f"chunked {i}", None, CHUNKED) for i in range(2)]
    out = []
    for name, prefill, decode in (("1P1D kvpipe", split.servers[:1], split.servers[1:]), ("2 chunked prefill", [], both)):
        servers = prefill + decode
        for server in servers:
            server.ready()
        proxy = stack.enter_context(pairs.fleet.Proxy(prefill, decode))
        load.drive(proxy.url, [pairs.Prompts(99).draw(600) for _ in range(8)], 4, 8)
        pairs.signal_all(servers, pairs.signal.SIGSTOP)
        out.append((name, proxy.url, servers))
    return out


def summary(measured):
    return {p: round(rows.percentile(measured, float(p[1:])) * 1e3, 3) for p in ("p50", "p99")}


def measure(targets, given):
    results = {name: [] for name, _, _ in targets}
    print(f"{'req/s':>6}  {'':<20} {'TTFT p50':>9} {'p99':>9} {'ITL p50':>9} {'p99':>9} {'tokens/s':>9} {'failed':>7}   (ms)")
    for number, rate in enumerate(given.rates):
        for name, url, servers in targets:
            prompts = pairs.Prompts(number, given.vocabulary)
            with awake(servers):
                got = load.drive(url, [prompts.draw(given.input) for _ in range(given.requests)], rate, given.output, given.model)
            point = {"rate": rate, "ttft": summary(got["ttft"]), "itl": summary(got["itl"]), "failed": got["failed"],
                     "tokens_per_s": round(got["tokens"] / got["seconds"], 1)}
            results[name].append(point)
            print(f"{rate:>6g}  {name:<20} {point['ttft']['p50']:>9.1f} {point['ttft']['p99']:>9.1f} {point['itl']['p50']:>9.1f} "
                  f"{point['itl']['p99']:>9.1f} {point['tokens_per_s']:>9.1f} {point['failed']:>7}", flush=True)
            if not got["ttft"]:
                sys.exit(f"bench-serving: {name} answered no request at {rate:g} a second")
    return results


def main():
    given = options()
    report = machine.report(input=given.input, output=given.output, requests=given.requests, model=given.model)
    print(machine.line(report), flush=True)
    with contextlib.ExitStack() as stack:
        targets = [(name, url.rstrip("/"), []) for name, url in given.target] or here(stack)
        report["results"] = measure(targets, given)
    machine.write(report, given.json)
    drawing = pathlib.Path(given.json).with_suffix(".svg")
    drawing.write_text(plot.draw(report["results"], f"{given.input} tokens in, {given.output} out"))
    print(f"bench: {given.json}, {drawing}")


if __name__ == "__main__":
    main()
