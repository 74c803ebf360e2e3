"""How a wheel comes to its library and programs: they are in kvpipe/ already, or made from native/.

The library needs a C compiler (CC, gcc). The programs kvpiped and kvpipectl need Go; without it, or with KVPIPE_NO_DAEMON=1, the
wheel has the library alone and works with a kvpiped that is installed otherwise.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path(__file__).resolve().parent / "native"
SONAME = "libkvpipe.so.0"
PROGRAMS = ("kvpiped", "kvpipectl")


def run(command, what, **more):
    print("kvpipe:", what, flush=True)
    try:
        subprocess.run(command, check=True, **more)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"kvpipe: {what} failed: {error}") from None


def library(path):
    """libkvpipe, as the project's Makefile builds it."""
    sources = sorted(map(str, (NATIVE / "capi").glob("*.c")))
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-pthread"]
    link = ["-shared", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={NATIVE}/capi/kvpipe.map", "-Wl,-z,defs,-z,now,-z,relro,-z,nodelete"]
    compiler = os.environ.get("CC", "gcc").split()
    if shutil.which(compiler[0]) is None:
        raise SystemExit(f"kvpipe: libkvpipe needs a C compiler: there is no {compiler[0]}; install gcc, or set CC")
    run([*compiler, *flags, f"-I{NATIVE}/include", f"-I{NATIVE}/capi", *sources, *link, "-o", str(path)], "compiling libkvpipe")


def programs(folder):
    go = shutil.which(os.environ.get("GO", "go"))
    if os.environ.get("KVPIPE_NO_DAEMON") == "1" or go is None:
        why = "KVPIPE_NO_DAEMON=1" if go else "there is no go in PATH"
        print(f"kvpipe: {why}: this wheel has the library, but neither kvpiped nor kvpipectl", file=sys.stderr, flush=True)
        return
    version = (NATIVE / "VERSION").read_text().strip()
    for name in PROGRAMS:
        # The daemon loads the GPU's library when there is one, which takes cgo; kvpipectl needs nothing.
        env = dict(os.environ, CGO_ENABLED="1" if name == "kvpiped" else "0")
        # Functions of the GPU's library are found when they are first called: it may not be there.
        flags = f"-s -w -X github.com/kvpipe/kvpipe/internal/version.version={version} -extldflags=-Wl,-z,lazy"
        run([go, "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo", "-ldflags", flags, "-o", str(folder / name), f"./cmd/{name}"],
            f"compiling {name} (KVPIPE_NO_DAEMON=1 leaves it out)", cwd=NATIVE, env=env)


class Build(build_py):
    def run(self):
        super().run()
        package = Path(self.build_lib).resolve() / "kvpipe"
        if NATIVE.is_dir():
            shutil.rmtree(package / "bin", ignore_errors=True)  # of another build in this tree, which may have had a go or not
            (package / "bin").mkdir(parents=True)
            library(package / SONAME)
            programs(package / "bin")


class Wheel(bdist_wheel):
    """For any Python 3, and for one platform: KVPIPE_PLATFORM, else this machine's."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", os.environ.get("KVPIPE_PLATFORM") or super().get_tag()[2]


class Native(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=Native, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
