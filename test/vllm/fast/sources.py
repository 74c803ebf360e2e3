"""Source distributions of vLLM, kept in build/vllm-src: its own tests, and other versions' interfaces.

usage: sources.py VERSION...        (with vLLM's Python: the distribution's metadata needs its torch)

Downloads what is not there yet, 45 MB each, and unpacks the tests.
"""

import os
import subprocess
import sys
import tarfile

from places import SOURCES

# What vLLM's setup.py imports to say its own name.
TOOLS = ["setuptools>=77,<81", "setuptools_scm", "setuptools_rust", "wheel", "packaging", "jinja2"]


def archive(version):
    return SOURCES / f"vllm-{version}.tar.gz"


def tests(version):
    """The folder that has vLLM's `tests` package, or None when it is not there."""
    folder = SOURCES / f"vllm-{version}"
    return folder if (folder / ".complete").exists() else None


def read(version, paths):
    """Path -> text, of those files that the version has. The distribution has to be there."""
    names, out = {f"vllm-{version}/{path}": path for path in paths}, {}
    with tarfile.open(archive(version)) as tar:
        for member in tar:
            if member.name in names:
                out[names[member.name]] = tar.extractfile(member).read().decode()
    return out


def _pip(*arguments, **env):
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True, cwd=SOURCES,
                   env={**os.environ, **env})


def download(version):
    if archive(version).exists():
        return
    SOURCES.mkdir(parents=True, exist_ok=True)
    tools, fresh = SOURCES / "tools", SOURCES / "fresh"
    if not tools.exists():
        _pip("install", "-q", "--no-warn-conflicts", "--target", "tools.new", *TOOLS)
        (SOURCES / "tools.new").rename(tools)
    _pip("download", "-q", "--no-deps", "--no-binary", "vllm", "--no-build-isolation", "-d", str(fresh), f"vllm=={version}",
         PYTHONPATH=str(tools), VLLM_VERSION_OVERRIDE=version, VLLM_TARGET_DEVICE="empty")
    (fresh / archive(version).name).rename(archive(version))


def unpack(version):
    if tests(version) is not None:
        return
    top = f"vllm-{version}"
    with tarfile.open(archive(version)) as tar:
        tar.extractall(SOURCES, filter="data", members=[
            m for m in tar if m.name == f"{top}/pyproject.toml" or m.name.startswith(f"{top}/tests/")])
    (SOURCES / top / ".complete").touch()


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        download(wanted)
        unpack(wanted)
        print(f"vLLM {wanted}: {archive(wanted)}")
