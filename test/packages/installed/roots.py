"""Roots to install into: small Debian systems without an init of their own. Needs root, mmdebstrap and Debian's mirror.

`make packages` comes first. KVPIPE_ROOT is a tar of a root that is made once and then reused.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from places import ROOT

PACKAGES = ROOT / "build/packages"
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
MIRROR = "http://deb.debian.org/debian"
LIMIT = 600


def package(name, kind, arch=ARCH):
    """The one file of a package."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[arch]
    pattern = f"{name}_[0-9]*_{arch}.deb" if kind == "deb" else f"{name}-[0-9]*.{machine}.rpm"
    (path,) = PACKAGES.glob(pattern)
    return path


def newer(name, kind, folder, version="99"):
    """The same package as a later version, with a configuration that says one thing more."""
    config = (PACKAGES / f"stage/{kind}-{ARCH}/{name}.yaml").read_text()
    config = re.sub(r'^version: .*', f'version: "{version}"', config, flags=re.M)
    changed = folder / "kvpiped.toml"
    if match := re.search(r'src: "(\S*/kvpiped\.toml)"', config):
        changed.write_text((ROOT / match[1]).read_text() + "# said by version 99\n")
        config = config.replace(match[1], str(changed))
    (folder / "nfpm.yaml").write_text(config)
    out = folder / f"{name}-{version}.{kind}"
    nfpm = ["build/tools/nfpm", "package", "--packager", kind, "--config", folder / "nfpm.yaml", "--target", out]
    subprocess.run(nfpm, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
    return out


class Root:
    """A root folder, and programs that run in it, with processes of their own."""

    def __init__(self, path):
        self.path = path

    def __truediv__(self, name):
        return self.path / name

    def run(self, command, check=True):
        """The output of a shell command in the root; no process outlives it."""
        inside = ["unshare", "--fork", "--pid", "--mount", "--kill-child", f"--root={self.path}", "--mount-proc", "sh", "-ec", command]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(inside, env=env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=LIMIT)
        assert done.returncode == 0 or not check, f"{command}:\n{done.stdout}"
        return done.stdout

    def bring(self, *files):
        """Files into the root's /tmp/new; that folder, as the root sees it."""
        (self / "tmp/new").mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, self / "tmp/new")
        return "/tmp/new"

    def files(self):
        """Everything there is, but for what package managers keep of their own."""
        own = ("proc/", "dev/", "tmp/", "var/lib/dpkg/", "var/lib/apt/", "var/log/", "var/cache/", "var/lib/rpm/", "root/")
        found = {str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_symlink() or not path.is_dir()}
        return {path for path in found if not path.startswith(own)}


@pytest.fixture(scope="session")
def tar():
    path = pathlib.Path(os.environ.get("KVPIPE_ROOT", ROOT / "build/test/root.tar"))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.tar")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", part, MIRROR], check=True, timeout=LIMIT)
        part.rename(path)
    return path


@pytest.fixture(scope="session")
def new_root(tar, tmp_path_factory):
    made = []

    def make():
        path = tmp_path_factory.mktemp("root")
        subprocess.run(["tar", "-C", path, "-xpf", tar], check=True, timeout=LIMIT)
        path.chmod(0o755)
        shutil.copy("/etc/resolv.conf", path / "etc/resolv.conf")
        made.append(path)
        return Root(path)

    yield make
    for path in made:
        shutil.rmtree(path, ignore_errors=True)


START = """
kvpiped --dev --listen off --node here --state-dir /tmp/state >/tmp/log 2>&1 & daemon=$!
for i in $(seq 600); do [ ! -S /tmp/state/kvpiped.sock ] || break; kill -0 $daemon || { cat /tmp/log; exit 1; }; sleep 0.1; done
export KVPIPE_SOCKET=/tmp/state/kvpiped.sock KVPIPE_ADMIN=/tmp/state/admin.sock
"""
STOP = "\nkill $daemon; wait $daemon || { cat /tmp/log; exit 1; }\n"
