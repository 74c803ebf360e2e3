"""The source distribution builds a whole wheel in a clean environment, and the platform of ours is what auditwheel finds."""

import os
import subprocess
import venv

import pytest
from places import ROOT
from roots import LIMIT

PACKAGES = ROOT / "build/packages"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin"


def test_the_source_builds_library_and_daemon(clean):
    (source,) = PACKAGES.glob("kvpipe-*.tar.gz")
    env = {key: value for key, value in os.environ.items() if not key.startswith("KVPIPE")}
    subprocess.run([clean / "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir", source], env=env, check=True, timeout=LIMIT)
    version = subprocess.run([clean / "python", "-m", "kvpipe", "--version"], env=env, check=True, stdout=subprocess.PIPE).stdout
    assert version == b"kvpiped " + subprocess.run([ROOT / "scripts/version.sh"], check=True, stdout=subprocess.PIPE).stdout
    say = "import kvpipe; print(kvpipe.version())"
    assert subprocess.run([clean / "python", "-c", say], env=env, check=True, stdout=subprocess.PIPE).stdout == (ROOT / "VERSION").read_bytes()


def test_auditwheel_agrees(clean):
    subprocess.run([clean / "pip", "install", "-q", "--disable-pip-version-check", "auditwheel"], check=True, timeout=LIMIT)
    (wheel,) = PACKAGES.glob(f"kvpipe-*_{os.uname().machine}.whl")
    said = subprocess.run([clean / "auditwheel", "show", wheel], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    platform = wheel.name.split("-")[-1][:-len(".whl")]
    assert f'"{platform}"' in " ".join(said.split()), said
