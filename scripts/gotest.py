#!/usr/bin/env python3
"""Read `go test -json` and print what a person wants to know.

Failures with their output, skips with their reason ("skip: ..."), one line for
each package, and "part passed: N tests in M packages, K skipped" at the end.
Exits with 1 when a test, a package or its build failed, or when nothing ran.
"""

import collections
import json
import sys


class Report:
    def __init__(self):
        self.output = collections.defaultdict(list)  # (package, test) -> lines
        self.tests = collections.Counter()  # pass, fail, skip
        self.packages = collections.Counter()

    def add(self, event):
        package = event.get("Package") or event.get("ImportPath", "")
        key = (package, event.get("Test"))
        action = event["Action"]
        if action in ("output", "build-output"):
            self.output[key].append(event["Output"])
        elif action == "build-fail":
            self.packages["fail"] += 1
            print("".join(self.output.pop(key, [])), flush=True)
        elif action in ("pass", "fail", "skip"):
            self.end(key, action, event.get("Elapsed", 0))

    def end(self, key, action, elapsed):
        package, test = key
        lines = self.output.pop(key, [])
        if test is None:
            self.packages[action] += 1
            if action == "fail":
                self.unended(package)
                print("".join(lines))
            print(f"{action:4}  {package}  {elapsed:.1f} s", flush=True)
            return
        self.tests[action] += 1
        if action == "fail":
            print(f"--- {package} {test}\n" + "".join(lines), flush=True)
        elif action == "skip":
            print(f"skip: {test}: {reason(lines)}", flush=True)

    def unended(self, package):
        """Tests that never ended: the package panicked or its time was over.

        What the runtime then prints, every goroutine's stack, is filed under
        the test that ran last, and no event says that this one failed.
        """
        for key in [key for key in self.output if key[0] == package]:
            print(f"--- {package} {key[1]} did not end\n" + "".join(self.output.pop(key)), flush=True)

    def finish(self):
        if self.packages["fail"] or self.tests["fail"]:
            print(f"{self.tests['fail']} tests failed in {self.packages['fail']} packages")
            return 1
        if not self.packages["pass"]:
            print("no package ran")
            return 1
        if not self.tests:
            print("no test ran: none has such a name")
            return 1
        skipped = f", {self.tests['skip']} skipped" if self.tests["skip"] else ""
        print(f"part passed: {self.tests['pass']} tests in {self.packages['pass']} packages{skipped}")
        return 0


def reason(lines):
    """The text given to t.Skip: what is neither a header nor a trailer."""
    texts = [line.strip() for line in lines if not line.lstrip().startswith(("===", "---"))]
    return " ".join(text for text in texts if text) or "no reason given"


def main():
    report = Report()
    for line in sys.stdin:
        if not line.startswith("{"):
            print(line, end="", flush=True)
            continue
        report.add(json.loads(line))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
