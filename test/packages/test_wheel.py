"""The wheel is a complete start without root, and the source distribution builds one."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest
from places import ROOT
from starts import listens

PACKAGES = ROOT / "build/packages"
LIMIT = 600  # seconds: a busy machine is no failure


def only(pattern):
    found = list(PACKAGES.glob(pattern))
    assert len(found) == 1, f"{PACKAGES} has not one {pattern} but {found}: make test-packages makes it"
    return found[0]


@pytest.fixture(scope="module")
def wheel():
    return only(f"kvpipe-*_{os.uname().machine}.whl")


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A Python with the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    path = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", path, "--disable-pip-version-check", "install", "-q", "--no-index", wheel]
    subprocess.run(pip, check=True, timeout=LIMIT)
    return path


@pytest.fixture
def env():
    """Nothing of this build, and a private place for sockets; their paths are short."""
    with tempfile.TemporaryDirectory(prefix="kvp-") as folder:
        yield {"PATH": "/usr/bin:/bin", "HOME": folder, "XDG_RUNTIME_DIR": folder}


def readme_example():
    """The first program of the README."""
    return re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]


def test_a_complete_start(python, env):
    folder = Path(env["XDG_RUNTIME_DIR"])
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen([python, "-m", "kvpipe", "--dev", "--listen", "127.0.0.1:0"], env=env, stdout=log, stderr=log)
    try:
        listens(daemon, folder / "kvpipe/kvpiped.sock", folder / "log", LIMIT)
        subprocess.run([python, "-c", readme_example()], env=env, check=True, timeout=LIMIT)
        status = subprocess.run([python, "-m", "kvpipe", "ctl", "status"], env=env, check=True, timeout=LIMIT, stdout=subprocess.PIPE)
        assert str(folder).encode() in status.stdout
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(LIMIT) == 0, (folder / "log").read_text()


def test_the_carried_library_is_used_unless_told_otherwise(python, env):
    say = "from kvpipe._library import library; print(library().path)"
    path = Path(subprocess.run([python, "-c", say], env=env, check=True, stdout=subprocess.PIPE, timeout=LIMIT).stdout.decode().strip())
    assert path.parent.parent.name == "site-packages"
    other = ROOT / "build/lib/libkvpipe.so.0"
    told = dict(env, KVPIPE_LIBRARY=str(other))
    assert subprocess.run([python, "-c", say], env=told, check=True, stdout=subprocess.PIPE, timeout=LIMIT).stdout.decode().strip() == str(other)


def test_vllm_finds_the_connector(python, env):
    say = "from importlib.metadata import entry_points as e; print([p.value for p in e(group='vllm.general_plugins')])"
    done = subprocess.run([python, "-c", say], env=env, check=True, stdout=subprocess.PIPE, timeout=LIMIT)
    assert done.stdout.decode().strip() == "['kvpipe.vllm:register']"


def test_the_platform_fits_the_symbols(wheel):
    tagged = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {"kvpipe/libkvpipe.so.0", "kvpipe/bin/kvpiped", "kvpipe/bin/kvpipectl"} <= set(names)
        used = {tuple(map(int, version)) for name in names if name.endswith(".so.0") or "/bin/" in name
                for version in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", archive.read(name))}
    assert max(used) == tuple(map(int, tagged.groups()))


def test_without_programs_it_says_what_to_install(env):
    env = dict(env, PYTHONPATH=str(ROOT / "python"))
    done = subprocess.run([sys.executable, "-m", "kvpipe", "--dev"], env=env, stderr=subprocess.PIPE, timeout=LIMIT)
    assert done.returncode == 1 and b"kvpiped is neither in this package" in done.stderr


def build(folder, source=None, **env):
    """What pip says of building the source distribution, or a folder it was unpacked to, and the names in the wheel that it makes."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "wheel", "-v", "--no-build-isolation", "--no-deps",
           "--no-index", "-w", folder, source or only("kvpipe-*.tar.gz")]
    done = subprocess.run(pip, env=dict(os.environ, **env), timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return done.stdout, archive.namelist()


def test_the_source_builds_without_go(tmp_path):
    """The library alone then, and it says so."""
    said, names = build(tmp_path, KVPIPE_NO_DAEMON="1")
    assert "neither kvpiped nor kvpipectl" in said
    assert "kvpipe/libkvpipe.so.0" in names and not [name for name in names if name.startswith("kvpipe/bin/")]


def test_the_source_builds_programs_with_go(tmp_path):
    _, names = build(tmp_path, GO=str(fake_go(tmp_path)), CC=str(fake_compiler(tmp_path)))
    assert {"kvpipe/libkvpipe.so.0", "kvpipe/bin/kvpiped", "kvpipe/bin/kvpipectl"} <= set(names)


def test_what_was_built_before_is_not_in_the_way(tmp_path):
    """Go may have been installed since; and who asks for the library alone gets nothing else."""
    subprocess.run(["tar", "-C", tmp_path, "-xf", only("kvpipe-*.tar.gz")], check=True)
    (source,) = tmp_path.glob("kvpipe-*")
    tools = {"GO": str(fake_go(tmp_path)), "CC": str(fake_compiler(tmp_path))}
    for without in ("1", "0", "1"):
        _, names = build(tmp_path, source, KVPIPE_NO_DAEMON=without, **tools)
        found = sorted(name for name in names if name.startswith("kvpipe/bin/"))
        assert found == ([] if without == "1" else ["kvpipe/bin/kvpipectl", "kvpipe/bin/kvpiped"])
        assert "kvpipe/libkvpipe.so.0" in names


def fake_go(folder):
    """A go that is quick: what the real one makes, test_source.py looks at."""
    path = folder / "go"
    path.write_text('#!/bin/sh\n[ -f go.mod ] && [ -d "$(eval echo \\${$#})" ] || exit 1\nwhile [ "$1" != -o ]; do shift; done\n: >"$2" && chmod 755 "$2"\n')
    path.chmod(0o755)
    return path


def fake_compiler(folder):
    path = folder / "cc"
    path.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n: >"$2"\n')
    path.chmod(0o755)
    return path
