#!/usr/bin/env python3
"""Check what the demo wrote against what the README says of it, against itself and against what it printed.

usage: demo_report.py DEMO.json OUTPUT

Speeds are not judged: the benchmark does that. Prints what is wrong and exits with 1 when something is.
"""

import json
import math
import pathlib
import sys

GIB = 2**30
ROWS = ("name", "bytes", "descriptors", "seconds", "gb_per_s", "of_memcpy", "of_tcp")


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


def shape(report):
    """The prompt of the README: 1 GiB in 16,384 blocks of 64 KiB."""
    for key, want in (("tokens", 8192), ("layers", 32), ("block_bytes", 64 * 1024)):
        if report[key] != want:
            yield f"{key}: {report[key]}, want {want}"
    for kind in ("tcp", "local"):
        if not any(row["name"].startswith(kind + ",") and (row["bytes"], row["descriptors"]) == (GIB, 16384) for row in report["handovers"]):
            yield f"no hand-over of 1 GiB in 16384 descriptors over {kind}"
    for name in ("tcp, of a killed producer", "tcp, after both restarts"):
        if not any(row["name"] == name for row in report["handovers"]):
            yield f"no hand-over {name}"
    if not any("TP 2" in row["name"] and "TP 4" in row["name"] for row in report["handovers"]):
        yield "no hand-over from TP 2 to TP 4"


def references(report):
    for kind in ("memcpy", "tcp"):
        one = report["references"][kind]
        if not (one["name"] and one["rounds"] and min(one["rounds"]) > 0):
            yield f"reference {kind}: {one}"
        elif not any(close(one["gb_per_s"], r) for r in one["rounds"]):
            yield f"reference {kind}: {one['gb_per_s']} GB/s is none of its rounds, {one['rounds']}"


def handovers(report):
    for row in report["handovers"]:
        if set(row) != set(ROWS) or not all(row[k] > 0 for k in ROWS[1:]):
            yield f"hand-over: {row}"
            continue
        if not close(row["gb_per_s"], row["bytes"] / row["seconds"] / 1e9):
            yield f"{row['name']}: {row['gb_per_s']} GB/s for {row['bytes']} bytes in {row['seconds']} s"
        for kind in ("memcpy", "tcp"):
            if not close(row[f"of_{kind}"], row["gb_per_s"] / report["references"][kind]["gb_per_s"]):
                yield f"{row['name']}: {row[f'of_{kind}']} of {kind}"


def small(report):
    if [one["name"] for one in report["small"]] != ["local", "tcp"]:
        yield f"small hand-overs: {report['small']}"
    for one in report["small"]:
        if not 0 < one["p50_us"] <= one["p99_us"] or one["count"] < 100:
            yield f"small hand-overs: {one}"


def restarts(report):
    """Each daemon is another process than before, each engine one and the same."""
    daemons = report["restarts"]["daemons"]
    if [one["node"] for one in daemons] != ["prefill-node", "decode-node"] or len({one["engine"] for one in daemons}) != 2:
        yield f"restarted daemons: {daemons}"
    for one in daemons:
        if one["before"] == one["after"] or not one["back_seconds"] > 0:
            yield f"restarted daemon: {one}"
    if not report["restarts"]["served_seconds"] > 0:
        yield f"the take that waited was served after {report['restarts']['served_seconds']} s"


def printed(report, output):
    """Every hand-over has its line in the table, with the same bytes and descriptors."""
    for row in report["handovers"]:
        cells = (row["name"], f"{row['bytes']:,}", f"{row['descriptors']:,}", f"{row['of_memcpy']:.2f}", f"{row['of_tcp']:.2f}")
        if not any(line.startswith(row["name"]) and all(cell in line for cell in cells) for line in output):
            yield f"{row['name']}: no such line was printed: {cells}"
    for word in ("verified", "cancel", "kill -9", "from a killed producer", "the take that waited is served", "p50", "p99"):
        if not any(word in line for line in output):
            yield f"nothing was printed about {word!r}"


def main():
    report = json.loads(pathlib.Path(sys.argv[1]).read_text())
    output = pathlib.Path(sys.argv[2]).read_text().splitlines()
    wrong = [w for part in (shape, references, handovers, small, restarts) for w in part(report)] + list(printed(report, output))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
