#!/usr/bin/env python3
"""Run C test programs, each in a folder of its own, a few side by side, and judge them.

usage: ctest.py PROGRAM...

A program passes with exit status 0 and skips with 77, its last line of output
being the reason; of one that passes, "skip: TEST: REASON" lines are shown. One whose source says "needs: daemon" in its first comment
finds a running `kvpiped --dev` at KVPIPE_SOCKET, which has to live until it is told to end; KVPIPED names the daemon's
binary for one that starts daemons itself. KVPIPE_TEST_DIR is the folder.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

LIMIT = 300  # seconds for one program; a sanitizer makes it slow
AT_ONCE = 3  # programs: some wait for deadlines most of their time
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # TSan takes two mappings of one memfd for two memories, so it sees nothing of
    # the order that a ring gives to what a test and its fake daemon do.
    "TSAN_OPTIONS": f"suppressions={pathlib.Path(__file__).resolve().parent / 'tsan.supp'}",
}
SKIP = 77
READY = re.compile(rb'msg=ready|"msg":"ready"')
ROOT = pathlib.Path(__file__).resolve().parent.parent
KVPIPED = ROOT / "build/bin/kvpiped"


def needs_daemon(program):
    source = ROOT / "capi/tests" / (pathlib.Path(program).name + ".c")
    return "needs: daemon" in source.read_text()[:2000]


@contextlib.contextmanager
def daemon(folder):
    """A development daemon with its socket in folder, stopped at the end; RuntimeError when it does not start or does not end well."""
    socket = folder / "kvpiped.sock"
    with open(folder / "kvpiped.log", "wb") as log:
        process = subprocess.Popen(
            [KVPIPED, "--dev", "--node", "ctest", "--state-dir", folder / "state", "--socket", socket,
             "--admin", folder / "admin.sock", "--ca", folder / "ca", "--listen", "127.0.0.1:0"],
            stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        # A socket that is there is not yet one that is listened to.
        while not READY.search((folder / "kvpiped.log").read_bytes()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("kvpiped did not start:\n" + (folder / "kvpiped.log").read_text())
            time.sleep(0.02)
        yield socket
    finally:
        early = process.poll() is not None
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.returncode != 0 or early:
        raise RuntimeError(f"kvpiped ended with {process.returncode}:\n" + (folder / "kvpiped.log").read_text())


def run(program):
    """Exit status and output of one program."""
    status, output = 1, ""
    try:
        with tempfile.TemporaryDirectory(prefix="kvpipe-ctest-") as name, contextlib.ExitStack() as stack:
            folder = pathlib.Path(name)
            env = dict(os.environ, KVPIPED=str(KVPIPED), KVPIPE_TEST_DIR=name, **SANITIZERS)
            if needs_daemon(program):
                env["KVPIPE_SOCKET"] = str(stack.enter_context(daemon(folder)))
            status, output = judge(program, folder, env)
    except RuntimeError as error:  # the daemon's
        status, output = status if status not in (0, SKIP) else 1, f"{output}{error}"
    return status, output


def judge(program, folder, env):
    try:
        done = subprocess.run([os.path.abspath(program)], cwd=folder, env=env, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace") + f"\nran longer than {LIMIT} s"


def main():
    passed = skipped = failed = 0
    programs = sys.argv[1:]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    for program, (status, output) in zip(programs, pool.map(run, programs)):
        name = pathlib.Path(program).name
        lines = output.strip().splitlines() or ["no reason given"]
        if status == 0:
            passed += 1
            print(f"ok    {name}", flush=True)
            for line in lines:
                if line.startswith("skip: "):
                    print(f"skip: {name}: {line[len('skip: '):]}", flush=True)
        elif status == SKIP:
            skipped += 1
            print(f"skip: {name}: {lines[-1]}", flush=True)
        else:
            failed += 1
            print(f"FAIL  {name}: exit status {status}\n{output}", flush=True)
    if failed:
        print(f"{failed} of {passed + skipped + failed} programs failed")
        return 1
    if not programs:
        print("no programs to run")
        return 1
    print(f"part passed: {passed} programs" + (f", {skipped} skipped" if skipped else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
