"""The processes of the demo: daemons and engines, started, spoken to, and ended whatever happens."""

import collections
import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """What ends the demo, in one line."""


def binary(name):
    folder = os.environ.get("KVPIPE_BIN", str(HERE.parents[1] / "build/bin"))
    path = pathlib.Path(folder, name)
    if not path.exists():
        raise Failed(f"{path} is not there: run `make build`, or set KVPIPE_BIN to where the binaries are")
    return str(path)


def until(true, what):
    """Asks a daemon again and again; each answer takes a while by itself."""
    deadline = time.monotonic() + 60
    while not true():
        if time.monotonic() > deadline:
            raise Failed(f"not within a minute: {what}")


@contextlib.contextmanager
def uninterrupted():
    """A signal that interrupts the demo does so at the end of this: a process that was just started would be left running."""
    came, before = [], {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.default_int_handler:
            before[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt


class Daemon:
    """`kvpiped --dev` in a folder of its own, on one of loopback's many addresses, which stays its own when it is started again."""

    def __init__(self, home, node, ca, peers=()):
        self.home, self.node = pathlib.Path(home, node), node
        self.home.mkdir(mode=0o700)
        self.socket, self.admin = str(self.home / "kvpiped.sock"), str(self.home / "admin.sock")
        self._command = [binary("kvpiped"), "--dev", "--node", node, "--state-dir", str(self.home), "--ca", str(ca)]
        for peer in peers:
            self._command += ["--peer", peer]
        # Not at the port of a kvpiped that serves this machine, at all of its addresses.
        self.address = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}:{8000 + secrets.randbelow(24000)}"
        self.start()

    def start(self):
        self._last = collections.deque(maxlen=20)
        self._ready, self._up = threading.Event(), False
        self._reader = None
        try:
            with uninterrupted():
                self.process = subprocess.Popen([*self._command, "--listen", self.address], stderr=subprocess.PIPE, text=True)
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
            self._ready.wait(60)
            if not self._up:
                raise Failed(f"kvpiped {self.node} did not start:\n" + "".join(self._last))
        except BaseException:  # who made it does not have it yet, and would leave it running
            if self._reader is not None:
                self.kill()
            raise

    def _read(self):
        with open(self.home / "log", "a") as log:
            for line in self.process.stderr:
                log.write(line)
                log.flush()
                self._last.append(line)
                if "msg=ready" in line:
                    self._up = True
                    self._ready.set()
        self._ready.set()

    def ask(self, *words):
        """kvpipectl's answer, as text."""
        done = subprocess.run([binary("kvpipectl"), "--admin", self.admin, *words], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failed(f"kvpipectl {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def status(self):
        return json.loads(self.ask("--json", "status"))

    def all(self, what):
        """Its sessions, offers, transfers."""
        return json.loads(self.ask("--json", what)) or []

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        if self.process.returncode != 0:
            raise Failed(f"kvpiped {self.node} ended with {self.process.returncode}:\n" + "".join(self._last))


class Engine:
    """An engine.py in a process of its own."""

    def __init__(self, name):
        self.name = name
        environment = dict(os.environ)
        built = HERE.parents[1] / "build/lib/libkvpipe.so.0"
        if built.exists():
            environment.setdefault("KVPIPE_LIBRARY", str(built))
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "engine.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            start_new_session=True,  # what interrupts the demo is nothing to it: it ends with its standard input
        )

    def call(self, do, on_event=None, **arguments):
        """Sends one command and waits for its answer."""
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"engine {self.name} is gone") from None
        for line in self.process.stdout:
            answer = json.loads(line)
            if "event" in answer:
                if on_event is not None:
                    on_event(answer["event"])
            elif "error" in answer:
                raise Failed(f"engine {self.name}: {do}: {answer['error']}: {answer['message']}")
            else:
                return answer["result"]
        raise Failed(f"engine {self.name} ended during {do}")

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdout.close()
