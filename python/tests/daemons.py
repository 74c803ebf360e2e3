"""Daemons for tests: `kvpiped --dev` in private folders at addresses of their own, which must leave nothing behind."""

import atexit
import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import threading
from collections import deque

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("KVPIPE_BIN", ROOT / "build/bin"))

READER = "daemon's log"  # the name of threads that a daemon has as long as it runs

logs = set()  # the pipes that these threads read


def own_address():
    """Where nobody else listens while a daemon is away: on one of loopback's many hosts, at a port that the system gives to nobody.

    Nor is it the port of a kvpiped that serves this machine, at all of its addresses.
    """
    return f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}:{8000 + secrets.randbelow(24000)}"


class Daemon:
    def __init__(self, home, node, ca, peers=(), config=""):
        self.home, self.node = home, node
        home.mkdir(mode=0o700, exist_ok=True)  # there already: a restart
        self.socket, self.admin = str(home / "kvpiped.sock"), str(home / "admin.sock")
        self.command = [str(BIN / "kvpiped"), "--dev", "--node", node, "--state-dir", str(home), "--ca", str(ca),
                        "--listen", own_address()]
        for peer in peers:
            self.command += ["--peer", peer]
        if config:
            (home / "kvpiped.toml").write_text(config)
            self.command += ["--config", str(home / "kvpiped.toml")]
        self.log = deque(maxlen=200)
        self.start()

    def start(self):
        self._ready = threading.Event()
        # In a session of its own, as a service is: processors are shared between sessions first, so it does not wait for all that runs
        # beside the tests.
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        logs.add(self.process.stderr)
        atexit.register(self.process.kill)  # a test that fails may leave it, and whoever reads its log would wait for ever
        self._reader = threading.Thread(target=self._read, name=READER, daemon=True)
        self._reader.start()
        if not self._ready.wait(60) or self.process.poll() is not None:
            self.kill()
            raise AssertionError(f"{self.node} did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            if "msg=ready" in line or '"msg":"ready"' in line:
                self._ready.set()
        self._ready.set()

    def ask(self, what):
        """The admin socket's answer, by way of kvpipectl."""
        done = subprocess.run([str(BIN / "kvpipectl"), "--admin", self.admin, "--json", what], capture_output=True,
                              text=True, timeout=60, check=True)
        return json.loads(done.stdout)

    def _close(self):
        self._reader.join()
        logs.discard(self.process.stderr)
        self.process.stderr.close()

    def freeze(self):
        """SIGSTOP; none of its threads runs any more when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._close()

    def stop(self):
        """Ends it; fails if it left anything behind."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.node} did not stop:\n" + "".join(self.log)) from None
        self._close()
        assert self.process.returncode == 0, "".join(self.log)
        left = [str(p) for p in (self.socket, self.admin) if os.path.exists(p)]
        assert not left, f"{self.node} left {left}"


@contextlib.contextmanager
def mortal(folder, first, second, apart):
    """Two daemons, or one that is both, to be killed at will: (the first, the second, the first's name; None if they are one)."""
    n = len(list(folder.iterdir()))
    daemons, peer = [Daemon(folder / f"{first}{n}", f"{first}{n}", folder / "ca")], None
    if apart:
        peer, address = daemons[0].node, daemons[0].ask("status")["advertise"]
        daemons.append(Daemon(folder / f"{second}{n}", f"{second}{n}", folder / "ca", [f"{peer}={address}"]))
    try:
        yield daemons[0], daemons[-1], peer
    except BaseException:
        for daemon in daemons:
            if daemon.process.poll() is None:
                daemon.kill()
        raise
    for daemon in daemons:
        if daemon.process.poll() is None:
            daemon.stop()
