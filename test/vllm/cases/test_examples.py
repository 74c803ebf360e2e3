"""The scripts of examples/vllm, as a user starts and ends them: `vllm serve`, a daemon, a proxy and all."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from harness import instance, models
from harness.handover import equal, prompt, tokens
from harness.wait import eventually

EXAMPLES = models.ROOT / "examples/vllm"
ARGUMENTS = ["--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--block-size", str(instance.BLOCK),
             "--kv-cache-memory-bytes", "64M", "--max-model-len", str(models.CONTEXT)]


class Behind(instance.Instance):
    """A server that a script has started, at its port."""

    def __init__(self, port):
        self.http = instance.httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False,
                                          transport=instance.httpx.HTTPTransport(retries=30))


class Script:
    """One that runs, with ports, sockets and files of its own."""

    def __init__(self, name, home, **env):
        decode = range(200, 200 + int(env.get("DECODE", 1)))
        first = instance.free_port(50, 51, 100, *decode)  # 50 and 51: the daemons of two nodes
        self.proxy, self.prefill = Behind(first), Behind(first + 100)
        self.decode = [Behind(first + n) for n in decode]
        self.lines, self.ready = [], threading.Event()
        path = os.pathsep.join((str(models.ROOT / "build/bin"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]))
        self.process = subprocess.Popen(
            [EXAMPLES / name, models.path("llama"), *ARGUMENTS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, stdin=subprocess.DEVNULL,
            env={**os.environ, **instance.ENV, "PATH": path, "PORT": str(first), "XDG_RUNTIME_DIR": home, **env})
        self.reader = threading.Thread(target=self._read, name=f"output of {name}")
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("ready: "):
                self.ready.set()
        self.ready.set()

    def text(self):
        return "".join(self.lines)

    def __enter__(self):
        try:
            assert self.ready.wait(500) and self.process.poll() is None, f"it is not ready:\n{self.text()}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """As a supervisor does it: nothing of what it has started stays."""
        for server in (self.proxy, self.prefill, *self.decode):
            server.http.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(180)
            eventually(lambda: not runs(self.process.pid))
        finally:
            if runs(self.process.pid):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.reader.join()
            self.process.stdout.close()


def runs(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("name, env", [
    ("1p1d.sh", {}),
    ("two-nodes.sh", {}),
    ("xpyd.sh", {"PREFILL": "1", "DECODE": "2", "KV": "multi-cpu.json"}),
])
def test_a_script_serves_hand_overs(tmp_path, name, env):
    """What comes out is what the prefill instance, which has computed the prompt, says by itself."""
    if "KV" in env:  # with a folder of its own for what that has in files
        text = (EXAMPLES / env["KV"]).read_text().replace("/tmp/kvpipe-example", str(tmp_path))
        (tmp_path / "kv.json").write_text(text)
        env = {**env, "KV": str(tmp_path / "kv.json")}
    with tempfile.TemporaryDirectory(prefix="kvp-ex-") as home, Script(name, home, **env) as script:
        for number, decode in enumerate(script.decode):  # they take turns
            ids = prompt(200 + number, name)
            equal(tokens(script.proxy.completion(ids)), tokens(script.prefill.completion(ids)))
            assert decode.metric("vllm:external_prefix_cache_hits_total") >= len(ids), script.text()
            assert decode.metric("vllm:kvpipe_load_seconds_count") == 1
        if name == "two-nodes.sh":
            assert "tcp" in script.text(), "`kvpipectl explain` names the transport"
