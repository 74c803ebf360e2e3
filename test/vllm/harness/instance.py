"""vLLM instances as processes: API servers that a Zygote forks, what to ask them, and how to end them."""

import contextlib
import json
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque

import httpx

from harness import models
from harness.wait import eventually

HERE = pathlib.Path(__file__).resolve().parent
READY = "Application startup complete"
ENV = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_CI_ENV": "1", "VLLM_SERVER_DEV_MODE": "1", "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOG_STATS_INTERVAL": "3600", "PYTHONUNBUFFERED": "1",
}
BLOCK = 32
CHUNK = 256  # tokens that one step computes at most: longer prompts are prefilled in chunks


def ports(first, last):
    """Those to choose from, where the kernel gives ports from first to last to who asks for just any: not these, if there are enough others."""
    return next(r for r in (range(10000, first), range(last + 1, 65536), range(10000, 65536)) if len(r) >= 1000)


def free_port(*more):
    """One that the kernel gives to nobody, so that it stays free until it is listened at, also again; so are those that are so much higher."""
    among = ports(*map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()))
    for _ in range(1000):
        port = random.choice(among)
        if any(port + n not in among for n in more):
            continue
        with contextlib.ExitStack() as bound, contextlib.suppress(OSError):
            for n in (0, *more):
                bound.enter_context(contextlib.closing(socket.socket())).bind(("127.0.0.1", port + n))
            return port
    raise OSError(f"none of 1000 ports among {among} is free")


class Zygote:
    """The process that servers are forked from; see zygote.py. Instances end with it.

    install names a module in path (folders) or the harness, whose function `install` each server calls before vLLM starts.
    """

    def __init__(self, install="harness.probe", path=()):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.install = install
        env = {**os.environ, **ENV, "PYTHONPATH": os.pathsep.join((str(HERE.parent), *path))}
        self.process = subprocess.Popen([sys.executable, str(HERE / "zygote.py")], stdin=theirs, env=env)
        theirs.close()
        self.lock = threading.Lock()
        self.warm = False

    def fork(self, argv, env, output):
        with self.lock:
            if not self.warm:
                assert self.control.recv(16) == b"ready", "the process to fork from could not import vLLM"
                self.warm = True
            socket.send_fds(self.control, [json.dumps({"argv": argv, "env": env, "install": self.install}).encode()], [output])
            return int(self.control.recv(16))

    def close(self):
        self.control.close()
        self.process.wait()


class Instance:
    """One API server with its engine core and workers.

    model is a name of models.MODELS, kv the value of --kv-transfer-config (None: none), more are further arguments.
    It is being started when the constructor returns; `ready` waits for it.
    """

    def __init__(self, zygote, name, model="llama", kv=None, more=(), env=None, block=BLOCK):
        self.name, self.zygote = name, zygote
        self.argv = ["--model", str(models.path(model)), "--served-model-name", "tiny", "--host", "127.0.0.1",
                     "--dtype", "float32", "--enforce-eager", "--block-size", str(block),
                     "--kv-cache-memory-bytes", "64M", "--max-model-len", str(models.CONTEXT),
                     "--max-num-batched-tokens", str(CHUNK), "--max-num-seqs", "64", "--no-enable-log-requests",
                     "--worker-extension-cls", "harness.probe.Probe", *more]
        if kv:
            self.argv += ["--kv-transfer-config", json.dumps(kv)]
        self.env = {"PYTHONPATH": os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", ""))), **(env or {})}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        """Starts it, for the first time or again, at the same address."""
        self.log = deque(maxlen=2000)
        self.started = threading.Event()
        ours, theirs = os.pipe()
        self.pid = self.zygote.fork([*self.argv, "--port", str(self.port)], self.env, theirs)
        os.close(theirs)
        self.pidfd = os.pidfd_open(self.pid)
        self.reader = threading.Thread(target=self._read, args=(ours,), name=f"log of {self.name}")
        self.reader.start()
        # The server hangs up on a connection that was idle for 5 s, perhaps just when a request goes out.
        self.http = httpx.Client(base_url=self.url, timeout=300, trust_env=False, limits=httpx.Limits(keepalive_expiry=2))

    def _read(self, descriptor):
        """Keeps the log, but not what is in every log."""
        with open(descriptor, errors="replace") as lines:
            for line in lines:
                if " Route: /" not in line and '/collective_rpc HTTP' not in line:
                    self.log.append(line)
                if READY in line:
                    self.up = True
                    self.started.set()
        self.started.set()

    up = False

    def ready(self, timeout=600):
        """Waits until it serves; with its log, if it never will."""
        self.started.wait(timeout)
        assert self.up, f"{self.name} did not start:\n{self.text()}"
        eventually(self._listens)  # which it does only after it has said that it is ready
        return self

    def _listens(self):
        try:
            return self.http.get("/health").is_success
        except httpx.ConnectError:
            return False

    def text(self):
        return "".join(self.log)

    def completion(self, prompt, **fields):
        """The answer to one prompt (a text, or token ids) as a dictionary; greedy, with ids, to the full length."""
        body = {"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 16, "ignore_eos": True,
                "return_token_ids": True, **fields}
        answer = self.http.post("/v1/completions", json=body)
        answer.raise_for_status()
        return answer.json()

    def metrics(self):
        """Prometheus samples by name with labels: {'vllm:x{...}': value}."""
        out = {}
        for line in self.http.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                out[name] = float(value)
        return out

    def metric(self, name, **labels):
        """The sum of all samples of that name with these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(value for sample, value in self.metrics().items()
                   if sample.partition("{")[0] == name and all(w in sample for w in wanted))

    def rpc(self, method, *args):
        """A method of each worker, by rank."""
        answer = self.http.post("/collective_rpc", json={"method": method, "args": list(args)})
        answer.raise_for_status()
        return answer.json()["results"]

    def holds(self):
        """What the scheduler holds, see probe.engine."""
        return self.rpc("probe_engine")[0]

    def steps(self):
        return self.rpc("probe_steps")[0]

    def computed(self, request_id):
        """Tokens that were computed for a request, step by step; request_id as in the answer."""
        return [n for step in self.steps() for name, n in step.items() if request_id in name]

    def kill(self):
        """The whole instance, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._gone()

    def ended(self, timeout=60):
        """Waits until its server has ended; whether it has."""
        return bool(select.select([self.pidfd], [], [], timeout)[0])

    def stop(self, timeout=180):
        """Ends it the orderly way."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        if not self.ended(timeout):
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.text()}")
        self._gone()

    def _gone(self):
        if self.pidfd is None:
            return
        select.select([self.pidfd], [], [])
        os.close(self.pidfd)
        self.pidfd = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what outlived the server
        self.reader.join()
        self.http.close()
        self.up = False
