"""A fleet: two nodes with their daemons, and the instances that tests ask for, kept and shared between tests."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

import httpx

from harness import instance, models
from harness.wait import becomes

ROOT = models.ROOT
sys.path.append(str(ROOT / "python/tests"))
from daemons import Daemon  # noqa: E402

os.environ.setdefault("KVPIPE_LIBRARY", str(ROOT / "build/lib/libkvpipe.so.0"))

NODES = ("node-a", "node-b")

# Also the shortest prompt comes from the other side. A busy machine may take long over one; who waits for an end sets less.
SETTINGS = {"kv_recompute_threshold": 0, "timeout": 120, "lease": 40}
BRIEF = {"timeout": 3}


def connector(daemon, policy="recompute", **settings):
    """The value of --kv-transfer-config: what a user writes, with the socket of a daemon that is not at its usual place."""
    return {"kv_connector": "KVPipeConnector", "kv_role": "kv_both", "kv_load_failure_policy": policy,
            "kv_connector_extra_config": {"socket": daemon.socket, **SETTINGS, **settings}}


class Fleet:
    def __init__(self):
        self.stack = contextlib.ExitStack()
        # Paths of sockets are short: a folder in build/ could be too long.
        self.home = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="kvp-vllm-")))
        self.zygote = instance.Zygote()
        self.stack.callback(self.zygote.close)
        self.nodes, self.instances = {}, {}
        for name in NODES:
            self._add_node(name)

    def _add_node(self, name):
        peers = [f"{other}={daemon.ask('status')['advertise']}" for other, daemon in self.nodes.items()]
        self.nodes[name] = Daemon(self.home / name, name, self.home / "ca", peers)
        self.stack.callback(self.nodes[name].stop)

    def start(self, name, node=None, settings=None, policy="recompute", wrap=lambda kv: kv, **options):
        """An instance of that name, now being started; the same one for who asks for it again. wrap changes the value
        of --kv-transfer-config."""
        if name not in self.instances:
            kv = wrap(connector(self.nodes[node], policy, **(settings or {}))) if node else None
            self.instances[name] = instance.Instance(self.zygote, name, kv=kv, **options)
            self.stack.callback(self.end, name)
        return self.instances[name]

    def end(self, name):
        """Stops it, when it still runs."""
        gone = self.instances.pop(name, None)
        if gone is not None and gone.pidfd is not None:
            gone.stop()

    # The instances of most tests.

    def reference(self, **options):
        """What every hand-over is compared with: one instance without a connector."""
        return self.start(f"reference {options.get('model', 'llama')}", **options)

    def prefill(self, number=0):
        return self.start(f"prefill-{number}", NODES[0])

    def decode(self, number=0):
        return self.start(f"decode-{number}", NODES[1])

    def settled(self):
        """Waits until no engine holds a request or a block, and no daemon an offer or a take."""
        idle = {"requests": 0, "blocks": 0, "running": 0, "waiting": 0}
        for engine in list(self.instances.values()):
            if engine.up:
                becomes(engine.holds, idle)
        for daemon in self.nodes.values():
            if daemon.process.poll() is None:
                for what in ("offers", "transfers"):
                    becomes(lambda d=daemon, w=what: d.ask(w) or [], [])

    def logs(self):
        """(name, lines) of everybody who runs."""
        for one in (*self.nodes.values(), *self.instances.values()):
            yield getattr(one, "node", None) or one.name, list(one.log)

    def close(self):
        self.stack.close()


class Proxy:
    """examples/vllm/proxy.py, running."""

    def __init__(self, prefill, decode, *more):
        self.port = instance.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, str(ROOT / "examples/vllm/proxy.py"), "--port", str(self.port), *more]
        for option, engines in (("--prefill", prefill), ("--decode", decode)):
            for engine in engines:
                command += [option, engine.url]
        self.process = subprocess.Popen(command)
        # It listens before it answers: a connection that is accepted waits for that.
        transport = httpx.HTTPTransport(retries=30)
        self.http = httpx.Client(base_url=self.url, timeout=300, trust_env=False, transport=transport)
        self.http.get("/health").raise_for_status()

    completion = instance.Instance.completion

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()
        self.process.terminate()
        self.process.wait()
