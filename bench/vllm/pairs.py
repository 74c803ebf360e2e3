"""A prefill and a decode server for each connector that is compared: those of the tests' harness, without its probes."""
import os
import pathlib
import random
import shutil
import signal
import sys

import client
import machine
import meter

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(machine.ROOT / "test/vllm"))
os.environ.setdefault("KVPIPE_LIBRARY", str(machine.ROOT / "build/lib/libkvpipe.so.0"))
from harness import fleet, instance, models  # noqa: E402

KVPIPE, NIXL, EXAMPLE = "kvpipe", "NixlConnector", "ExampleConnector"
WHOLE = ["--max-num-batched-tokens", "2048"]  # a prompt in one step
# Connections are kept while another pair is measured.
ENVIRONMENT = {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}


def zygote(stack, install="meter"):
    """What servers are forked from, each prepared by that module; the exit stack ends it and them."""
    models.path("llama")
    parent = instance.Zygote(install=install, path=[str(HERE)])
    stack.callback(parent.close)
    return parent


def serve(parent, stack, name, kv, more=(), **env):
    """A server, being started; kv is its --kv-transfer-config."""
    server = instance.Instance(parent, name, kv=kv, more=more, env={**ENVIRONMENT, **env})
    stack.callback(server.kill)
    return server


def signal_all(servers, number):
    """Stops or continues all processes of servers. Threads of some connectors spin when there is nothing to do, too."""
    for server in servers:
        os.killpg(server.pid, number)


class Pair:
    """Two servers, being started, and how a prompt goes from one to the other. The exit stack ends them.

    nodes and config are of kvpipe's daemons: one for both servers or one each; env is added to the servers' environment.
    """

    def __init__(self, name, parent, home, stack, nixl="", metered=True, nodes=1, config="", env=()):
        self.name, self.home = name, pathlib.Path(home, name)
        self.home.mkdir()
        self.daemons, self.meters, self.servers = [], [], []
        self.handed = 0  # tokens of prompts that D was asked to load
        for number in range(nodes if name == KVPIPE else 0):
            peers = [f"{d.node}={d.ask('status')['advertise']}" for d in self.daemons]
            self.daemons.append(fleet.Daemon(self.home / f"n{number}", f"node-{number}", self.home / "ca", peers, config))
            stack.callback(self.daemons[-1].stop)
        for role in ("prefill", "decode"):
            more = {**dict(env), "KVPIPE_BENCH_PATH": nixl, "KVPIPE_TRACE_WHO": role,
                    "VLLM_NIXL_SIDE_CHANNEL_PORT": str(instance.free_port())}
            if metered:
                more["KVPIPE_METER"] = str(self.home / f"{role}.meter")
                meter.create(more["KVPIPE_METER"])
                self.meters.append(meter.Meter(more["KVPIPE_METER"]))
            self.servers.append(serve(parent, stack, f"{name} {role}", self._config(role), WHOLE, **more))

    def _config(self, role):
        """--kv-transfer-config"""
        if self.name == KVPIPE:
            daemon = self.daemons[0 if role == "prefill" else -1]
            return {"kv_connector": "KVPipeConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
                    "kv_connector_extra_config": {"socket": daemon.socket}}
        if self.name == NIXL:
            return {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu",
                    "kv_load_failure_policy": "recompute"}
        return {"kv_connector": "ExampleConnector", "kv_role": "kv_both",
                "kv_connector_extra_config": {"shared_storage_path": str(self.home / "files")}}

    def open(self):
        """Waits until both serve."""
        self.p, self.d = (client.Client(server.ready().port) for server in self.servers)

    def stop(self):
        signal_all(self.servers, signal.SIGSTOP)

    def wake(self):
        signal_all(self.servers, signal.SIGCONT)

    def prefilled(self, prompt):
        """(P's first token, what D's request has to carry, when P's answer was there)"""
        more = {} if self.name == EXAMPLE else {"kv_transfer_params": client.ASK_PREFILL}
        answer, at = self.p.complete(prompt, 1, **more)
        params = answer.get("kv_transfer_params")
        if not params and self.name != EXAMPLE:
            raise client.Failed(f"{self.name}: the prefill server's answer has no kv_transfer_params")
        return answer["choices"][0]["text"], {"kv_transfer_params": params} if params else {}, at

    def hand_over(self, prompt, tokens=4):
        """Seconds from P's answer to D's first token."""
        first, more, at = self.prefilled(prompt)
        self.handed += len(prompt)
        text, times = self.d.stream(prompt, tokens, **more)
        if not text.startswith(first):
            raise client.Failed(f"{self.name}: prefill said {first!r}, decode {text!r}")
        return times[0] - at

    def tidy(self):
        """The files of ExampleConnector stay for ever otherwise."""
        if self.name == EXAMPLE:
            shutil.rmtree(self.home / "files", ignore_errors=True)

    def loaded(self):
        """Of the tokens that D was handed so far the share that it did not have to compute, as its own counter has it."""
        share = self.d.metric("vllm:external_prefix_cache_hits_total") / self.handed
        if not 0.9 <= share <= 1:
            raise client.Failed(f"{self.name} loaded {share:.1%} of the tokens that were handed over, which is not 90 to 100%")
        return share


class Prompts:
    """Token ids that no server has seen before: every prompt of a run is another one."""

    def __init__(self, seed=1, vocabulary=models.VOCABULARY):
        self._random, self._ids = random.Random(seed), range(2, vocabulary)

    def draw(self, length):
        return self._random.choices(self._ids, k=length)
