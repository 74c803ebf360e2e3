"""What the demo shows while it runs and at its end."""

import json
import pathlib
import sys
import time


class Story:
    """Headings and lines; a bar that moves on a terminal and is one line elsewhere."""

    def __init__(self):
        self._start = time.monotonic()

    def heading(self, text):
        print(f"\n[{time.monotonic() - self._start:5.1f} s] {text}", flush=True)

    def line(self, text):
        for part in text.splitlines():
            print(f"          {part}", flush=True)

    def bar(self, what, total, unit):
        """A callback for how far it is, from 1 to total."""
        def show(done):
            if sys.stdout.isatty():
                width = 40
                full = width * done // total
                end = "\n" if done == total else ""
                print(f"\r          {what} [{'#' * full}{'.' * (width - full)}] {done}/{total} {unit}", end=end, flush=True)
            elif done in (total // 4, total // 2, total * 3 // 4, total):
                self.line(f"{what}: {done} of {total} {unit}")

        return show


def table(rows):
    """rows: dicts with name, bytes, descriptors, seconds, of_memcpy, of_tcp."""
    head = ("hand-over", "bytes", "descriptors", "time to done", "GB/s", "of memcpy", "of plain TCP")
    body = [
        (
            row["name"],
            format(row["bytes"], ","),
            format(row["descriptors"], ","),
            f"{row['seconds'] * 1e3:.1f} ms",
            f"{row['bytes'] / row['seconds'] / 1e9:.2f}",
            f"{row['of_memcpy']:.2f}",
            f"{row['of_tcp']:.2f}",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    for line in (head, *body):
        cells = [line[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print("  ".join(cells))


def plain(references):
    for reference in references:
        print(f"    beside it, for the same list: {reference['name']}: {reference['gb_per_s']:.2f} GB/s")


def latency(rows):
    print()
    for row in rows:
        print(f"4 KiB hand-over, {row['name']:5}  p50 {row['p50_us']:7.1f} us   p99 {row['p99_us']:7.1f} us   "
              f"({row['count']} one by one, from take to done)")


def write(path, data):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n")
