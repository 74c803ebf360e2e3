"""examples/vllm and docs/vllm.md: what they say parses, and what they call exists."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from places import ROOT

from kvpipe.vllm.params import Settings

EXAMPLES = ROOT / "examples/vllm"
BIN = ROOT / "build/bin"
SCRIPTS = sorted(EXAMPLES.glob("*.sh"))
MANIFESTS = [EXAMPLES / "compose.yaml", *sorted(EXAMPLES.glob("kubernetes/*.yaml")), ROOT / "packaging/kubernetes/engine.yaml"]
GUIDE = ROOT / "docs/vllm.md"


def help_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def documents(path):
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


def walk(node):
    """Every value below a document."""
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)


def check_connector(config):
    """A --kv-transfer-config that vLLM and the connector accept."""
    from vllm.config import KVTransferConfig
    KVTransferConfig(**config)
    extra = config.get("kv_connector_extra_config", {})
    if config["kv_connector"] == "MultiConnector":
        for child in extra["connectors"]:
            check_connector(child)
    elif config["kv_connector"] == "KVPipeConnector":
        Settings.parse(extra)
        assert config["kv_load_failure_policy"] == "recompute", "also within MultiConnector, whose own does not reach it"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts(path):
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert not shutil.which("shellcheck") or not help_of("shellcheck", "-S", "warning", str(path))
    usage = subprocess.run([str(path)], capture_output=True, text=True)
    assert usage.returncode == 2 and "MODEL" in usage.stdout
    known = help_of(str(BIN / "kvpiped"), "--help")
    for flag in re.findall(r"\bkvpiped (--.*)", path.read_text()):
        for name in re.findall(r"--([a-z-]+)", flag):
            assert f"  -{name}" in known, f"kvpiped has no --{name}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_end_with_what_they_started(path, tmp_path):
    """An instance that does not start ends all: the output has an end too, which nobody holds open any more."""
    for name, does in (("vllm", "echo no such model; exit 3"), ("kvpiped", "exec sleep 1000"), ("kvpipectl", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PORT": "1"}
    ended = subprocess.run([path, "m"], env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1 and "no such model" in ended.stdout and "has ended" in ended.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda p: p.name)
def test_configurations(path):
    check_connector(json.loads(path.read_text()))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_manifests(path):
    parsed = documents(path)
    assert parsed
    configs = [value.partition("=")[2] for d in parsed for value in walk(d)
               if isinstance(value, str) and value.startswith("--kv-transfer-config=")]
    for config in configs:
        check_connector(json.loads(config))
    assert configs


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_the_directory_of_the_socket_is_mounted(path):
    """Never the socket itself, which a restarted daemon replaces."""
    mounts = [m["mountPath"] for d in documents(path) for m in walk(d) if isinstance(m, dict) and "mountPath" in m]
    mounts += [v.partition(":")[2] for d in documents(path) for v in walk(d.get("services", {})) if isinstance(v, str) and ":/" in v]
    assert "/run/kvpipe" in mounts and not [m for m in mounts if m.endswith(".sock")]
    for volume in (v for d in documents(path) for v in walk(d) if isinstance(v, dict) and "hostPath" in v):
        assert volume["hostPath"]["path"] == "/run/kvpipe" and volume["hostPath"]["type"].startswith("Directory")


def test_proxy():
    assert "--prefill" in help_of(sys.executable, str(EXAMPLES / "proxy.py"), "--help")


def test_guide():
    text = GUIDE.read_text()
    for config in re.findall(r"--kv-transfer-config '(\{.*?\})'", text):
        check_connector(json.loads(config))
    for name in re.findall(r"\bKV=(\S+\.json)", text):  # what a reader starts, on the CPUs that this release is for
        assert "OffloadingConnector" not in (ROOT / name).read_text(), f"{name}: vLLM offloads from GPUs alone"
    known = help_of(str(BIN / "kvpipectl"), "--help")
    for command in re.findall(r"`kvpipectl ([a-z]+)", text):
        assert f"\n  {command} " in known, f"kvpipectl has no {command}"
    for name in re.findall(r"`([a-z0-9-]+\.(?:sh|py|json|yaml))`|`(kubernetes/[a-z-]+\.yaml)`", text):
        assert (EXAMPLES / (name[0] or name[1])).exists(), name
    for metric in re.findall(r"`vllm:(kvpipe_[a-z_]+)`", text):
        assert f"vllm:{metric}" in (ROOT / "python/kvpipe/vllm/stats.py").read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (GUIDE.parent / target).exists(), target
