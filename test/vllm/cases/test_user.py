"""What a user types, and reads."""

import json
import os
import subprocess
import sys

import pytest

from harness import instance, models
from harness.fleet import BRIEF, connector
from harness.handover import decode, equal, handover, prefill, prompt, tokens

pytestmark = pytest.mark.core

LINE = {"kv_connector": "KVPipeConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}


def test_one_line_of_configuration(fleet, d, reference):
    """`vllm serve`, with nothing of ours but that line; the daemon's socket is where the environment says."""
    port = instance.free_port()
    vllm = os.path.join(os.path.dirname(sys.executable), "vllm")
    command = [vllm, "serve", str(models.path("llama")), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port",
               str(port), "--dtype", "float32", "--enforce-eager", "--block-size", str(instance.BLOCK),
               "--kv-cache-memory-bytes", "64M", "--kv-transfer-config", json.dumps(LINE)]
    env = {**os.environ, **instance.ENV, "KVPIPE_SOCKET": fleet.nodes["node-a"].socket}
    p = Served(command, env, port)
    try:
        p.ready()
        ids = prompt(300, "one line")
        answer = handover(p, d, ids)
        equal(tokens(answer), tokens(reference.completion(ids)))
        assert d.computed(answer["id"])[0] == 1
    finally:
        p.stop()


class Served(instance.Instance):
    """An instance that is started as a user does it, without the harness's fork."""

    def __init__(self, command, env, port):
        self.name, self.port, self.url = "vllm serve", port, f"http://127.0.0.1:{port}"
        self.command, self.env = command, env
        self.zygote = self
        self.argv = []
        self.start()

    def fork(self, argv, env, output):
        self.process = subprocess.Popen(self.command, env=self.env, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                        start_new_session=True)
        return self.process.pid

    def _gone(self):
        super()._gone()
        self.process.wait()


def refused(fleet, kv, *more):
    """The log of an instance that does not start."""
    one = instance.Instance(fleet.zygote, "refused", kv=kv, more=more)
    one.started.wait(600)
    one.reader.join(0 if one.up else 600)
    up, text = one.up, one.text()
    one.kill()
    assert not up, "it started"
    return text


def test_no_daemon(fleet):
    kv = connector(fleet.nodes["node-a"], connect_timeout=1)
    path = fleet.home / "nobody.sock"
    kv["kv_connector_extra_config"]["socket"] = str(path)
    assert (f'kvpipe: no daemon at {path}: mount that directory into the pod or start "kvpiped --dev"; '
            'then run "kvpipectl doctor"') in refused(fleet, kv)


def test_unknown_key(fleet):
    kv = connector(fleet.nodes["node-a"], leese=3)
    text = refused(fleet, kv)
    assert "kvpipe: unknown key 'leese' in kv_connector_extra_config: did you mean 'lease'?" in text


def test_policy_fail_warns(fleet, p):
    d = fleet.start("decode-fail", "node-b", BRIEF, policy="fail").ready()
    assert "kv_load_failure_policy is 'fail'" in d.text()


def test_another_model(fleet, p, reference):
    """D has other KV heads than P: it says which field, and both values, and computes."""
    d = fleet.start("decode-other-model", "node-b", {"model": "something-else"}).ready()
    ids = prompt(200, "other model")
    answer = decode(d, ids, prefill(p, ids))
    equal(tokens(answer), tokens(reference.completion(ids)))
    assert d.computed(answer["id"])[0] == 200
    assert 'fingerprint field "model" is "llama" at the producer and "something-else" at the consumer' in d.text()


def test_parameters_of_another_connector(d, reference):
    """A NIXL prefill instance answers like this; D says so, and computes."""
    ids = prompt(120, "nixl")
    params = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1, 2, 3, 4]],
              "remote_engine_id": "0f4c", "remote_request_id": "cmpl-1", "remote_host": "10.1.2.3", "remote_port": 5600,
              "tp_size": 1}
    answer = decode(d, ids, params)
    equal(tokens(answer), tokens(reference.completion(ids)))
    assert 'kv_transfer_params has no "kvpipe" dict' in d.text()


@pytest.mark.parametrize("kvpipe", [
    {}, {"v": 99}, "text",
    {"v": 1, "node": "node-a", "key": "x", "token": "!"},
    {"v": 1, "node": "10.1.2.3:1", "key": "x", "token": "A" * 32},
])
def test_parameters_that_a_client_made_up(d, reference, kvpipe):
    ids = prompt(80, f"made up {kvpipe}")
    answer = decode(d, ids, {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1, 2, 3]],
                             "remote_engine_id": "e", "remote_host": "h", "remote_port": 1, "kvpipe": kvpipe})
    equal(tokens(answer), tokens(reference.completion(ids)))
