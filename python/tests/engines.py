"""Engines in processes of their own, which tests kill, stop and ask; and what must be left of them: nothing."""

import json
import math
import os
import pathlib
import select
import signal
import subprocess
import sys
import textwrap
import time

import kvpipe
import pytest

HERE = pathlib.Path(__file__).resolve().parent

PATIENCE = 60.0  # bounds every wait; nothing is expected to take a fraction of it
LATE = 10.0  # how long after its deadline a call may end on a machine that is busy with something else

# What a process runs: lines of code in, their values or errors out.
_LOOP = """
import json, os, sys, time
import kvpipe
from caches import *
for line in sys.stdin:
    code = json.loads(line)
    try:
        try:
            answer = {"value": eval(compile(code, "asked", "eval"))}
        except SyntaxError:
            exec(compile(code, "asked", "exec"))
            answer = {"value": None}
    except kvpipe.Error as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    except BaseException as error:
        answer = {"error": "", "text": repr(error)}
    print(json.dumps(answer, default=repr), flush=True)
"""


class Engine:
    """A process with a session of its own: `cache`, a caches.Cache, or a scheduler's `node`."""

    def __init__(self, socket, name, **more):
        env = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen([sys.executable, "-B", "-X", "faulthandler", "-c", _LOOP], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if more.pop("scheduler", False):
            self.ask(f"node = kvpipe.connect({socket!r}, engine_id={name!r}, role='scheduler')")
        else:
            self.ask(f"cache = Cache({socket!r}, {name!r}, **{more!r})")

    def begin(self, code):
        """Has it run code; reply() gives the answer."""
        self.process.stdin.write(json.dumps(textwrap.dedent(code).strip()).encode() + b"\n")
        self.process.stdin.flush()

    def reply(self, within=PATIENCE):
        """The value, or the kvpipe.Error that was raised there."""
        assert select.select([self.process.stdout], [], [], within)[0], f"no answer within {within} s"
        answer = json.loads(self.process.stdout.readline() or '{"error": "", "text": "it died"}')
        if "error" in answer:
            if not answer["error"]:
                raise AssertionError(answer["text"])
            raise getattr(kvpipe, answer["error"])(answer["text"])
        return answer["value"]

    def ask(self, code, within=PATIENCE):
        self.begin(code)
        return self.reply(within)

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        """Ends the process, whatever state it is in."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def usage(daemon):
    """(descriptors, mapped memfds) of a daemon's process."""
    proc = pathlib.Path(f"/proc/{daemon.process.pid}")
    return len(os.listdir(proc / "fd")), (proc / "maps").read_text().count("memfd:")


def mapped(daemon):
    """usage() for idle() when a channel may be opened meanwhile: the number of descriptors does not count."""
    return math.inf, usage(daemon)[1]


def idle(daemon, before=None, within=PATIENCE):
    """Waits until a daemon holds nothing for anybody any more, and no more descriptors and mappings than before."""
    deadline = time.monotonic() + within
    while True:
        counts = daemon.ask("status")["counts"]
        left = {k: n for k, n in counts.items() if n and k not in ("peers", "peers_up")}
        now = usage(daemon)
        if not left and (before is None or (now[0] <= before[0] and now[1] <= before[1])):
            return
        assert time.monotonic() < deadline, f"{daemon.node} still has {left}, (descriptors, memfds) {now}, before {before}"


def until(ok, what, within=PATIENCE):
    """Waits for something that no event announces."""
    deadline = time.monotonic() + within
    while not ok():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"


def heard(call, within, *instead):
    """The daemon's error that ends a call. When the daemon was kept from running for half a second, the library ends the call,
    without knowing why and with some of the words in instead; then the call is made again. within: the caller's own deadline,
    if that is what ends the call."""
    for _ in range(10):
        began = time.monotonic()
        with pytest.raises(kvpipe.Error) as caught:
            call()
        assert time.monotonic() - began < within + LATE, caught.value
        if not any(words in str(caught.value) for words in instead):
            break
    return caught.value


def why_late(call, within):
    """What a call says when its time, within, is over."""
    error = heard(call, within, "the daemon does not answer", "nobody sent anything yet")
    assert isinstance(error, kvpipe.Timeout), repr(error)
    return str(error)


def gone(daemon, engine):
    """Waits until an engine has neither a session nor memory any more."""
    for table in ("sessions", "regions"):
        until(lambda: not [x for x in daemon.ask(table) or [] if x["engine"] == engine], f"{engine} has no {table}")
