"""The manifests keep the rules: what the daemon may do is listed, and an engine needs next to nothing."""

import copy
import os
import re
import subprocess

import pytest
import yaml
from places import BIN, ROOT

FOLDER = ROOT / "packaging/kubernetes"


def documents(name):
    return [d for d in yaml.safe_load_all((FOLDER / name).read_text()) if d]


def pod(document):
    return document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def problems(spec, may=()):
    """What a pod does that it must not. may: capabilities that it may have."""
    found = []
    volumes = {v["name"]: v for v in spec.get("volumes", [])}
    for volume in volumes.values():
        path = volume.get("hostPath")
        if path and (path["path"] != "/run/kvpipe" or not path.get("type", "").startswith("Directory")):
            found.append(f"host path {path}: the folder of the socket alone, as a folder")
    if spec.get("automountServiceAccountToken") is not False:
        found.append("has a token of Kubernetes' API")
    for c in containers(spec):
        context = c.get("securityContext", {})
        if context.get("privileged"):
            found.append(f"{c['name']}: privileged")
        if context.get("allowPrivilegeEscalation") is not False:
            found.append(f"{c['name']}: may gain privileges")
        caps = context.get("capabilities", {})
        if caps.get("drop") != ["ALL"] or set(caps.get("add", ())) - set(may):
            found.append(f"{c['name']}: capabilities {caps}")
        for mount in c.get("volumeMounts", []):
            if mount["name"] not in volumes:
                found.append(f"{c['name']}: no volume {mount['name']}")
            if mount["mountPath"].endswith(".sock"):
                found.append(f"{c['name']}: mounts a socket")
    return found


@pytest.fixture
def daemon():
    return pod(documents("kvpiped.yaml")[1])


@pytest.fixture
def engine():
    return pod(documents("engine.yaml")[0])


def test_the_daemon_may_lock_memory_and_no_more(daemon):
    assert problems(daemon, may=["IPC_LOCK"]) == []
    assert daemon["containers"][0]["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert daemon["hostNetwork"] and daemon["hostPID"] and not daemon.get("hostIPC")


def test_an_engine_has_the_folder_of_the_socket_alone(daemon, engine):
    assert problems(engine) == []
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(engine)
    for spec in (daemon, engine):
        paths = [v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v]
        mounts = [m["mountPath"] for m in spec["containers"][0]["volumeMounts"]]
        assert paths == ["/run/kvpipe"] and "/run/kvpipe" in mounts


@pytest.mark.parametrize("spoil, says", [
    (lambda s: s["containers"][0]["securityContext"].update(privileged=True), "privileged"),
    (lambda s: s["containers"][0]["securityContext"]["capabilities"]["add"].append("SYS_ADMIN"), "SYS_ADMIN"),
    (lambda s: s["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"), "gain"),
    (lambda s: s["initContainers"][0].pop("securityContext"), "certs"),
    (lambda s: s["volumes"][-1]["hostPath"].update(path="/run/kvpipe/kvpiped.sock", type="Socket"), "host path"),
    (lambda s: s["containers"][0]["volumeMounts"].append({"name": "none", "mountPath": "/x"}), "no volume none"),
])
def test_what_the_rules_find(daemon, spoil, says):
    spoiled = copy.deepcopy(daemon)
    spoil(spoiled)
    assert any(says in problem for problem in problems(spoiled, may=["IPC_LOCK"]))


def test_probes_ask_what_there_is(daemon):
    sample = (ROOT / "packaging/kvpiped.toml").read_text()
    host, port = re.search(r'^#metrics = "(.*):(\d+)"', sample, re.M).groups()
    probe = daemon["containers"][0]["readinessProbe"]["httpGet"]
    assert probe == {"host": host, "port": int(port), "path": "/health"}
    assert "/health" in sample
    command = daemon["containers"][0]["livenessProbe"]["exec"]["command"]
    assert f"\n  {command[1]} " in subprocess.run([BIN / "kvpipectl", "--help"], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def test_the_daemon_accepts_its_configuration(daemon, tmp_path):
    """With certificates as the init container lays them out."""
    for words in (["init"], ["node", "node-a"]):
        subprocess.run([BIN / "kvpipectl", "certs", *words, "--ca", tmp_path / "secret"], check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "certs").mkdir()
    script = daemon["initContainers"][0]["args"][0]
    script = script.replace("/certs/", f"{tmp_path}/certs/").replace("/secret/", f"{tmp_path}/secret/")
    for file in (tmp_path / "secret").iterdir():
        file.chmod(0o400)
    # Without what lets root write everywhere; a node that is not in the secret yet, then the same with what it left, and once more.
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    for node, well in ("node-b", False), ("node-a", True), ("node-a", True):
        done = subprocess.run([*bare, "sh", "-ec", script], env={"NODE": node, "PATH": "/usr/bin:/bin"}, stderr=subprocess.PIPE, universal_newlines=True)
        assert (done.returncode == 0) == well, done.stderr
    text = documents("kvpiped.yaml")[0]["data"]["kvpiped.toml"].replace("/etc/kvpipe/certs", str(tmp_path / "certs"))
    (tmp_path / "kvpiped.toml").write_text(text)
    args = [a.replace("$(NODE)", "node-a").replace("/etc/kvpipe", str(tmp_path)) for a in daemon["containers"][0]["args"]]
    subprocess.run([BIN / "kvpiped", "--check-config", *args], check=True, stdout=subprocess.DEVNULL)


def test_the_image_is_made_of_packages_that_there_are():
    text = (ROOT / "packaging/container/Containerfile").read_text()
    names = re.findall(r"build/packages/(\w+)_\*", text)
    assert names == ["kvpiped", "kvpipectl"]
    for name in names:
        assert f"\nname: {name}\n" in (ROOT / f"packaging/nfpm/{name}.yaml").read_text()
    assert (ROOT / "packaging/container/install.sh").is_file() and "packaging/container/install.sh" in text


def test_who_renews_certificates_is_told_of_the_copies(daemon):
    """What an init container has copied does not follow the secret: the daemon reads its files again and finds the same."""
    (certs,) = [m["name"] for m in daemon["containers"][0]["volumeMounts"] if m["mountPath"] == "/etc/kvpipe/certs"]
    (volume,) = [v for v in daemon["volumes"] if v["name"] == certs]
    if "emptyDir" in volume:
        for path in (FOLDER / "kvpiped.yaml", ROOT / "docs/operating.md"):
            assert "kubectl rollout restart daemonset/kvpiped" in path.read_text()
