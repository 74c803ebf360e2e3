"""The arm64 packages, run under qemu-user: a daemon, kvpipectl, and a program that hands over through the library."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from places import ROOT
from roots import LIMIT, package
from starts import listens

SYSROOT = "/usr/aarch64-linux-gnu"
# qemu-user says of any advice that it was taken. The library believes that its memory is there then; what it does on kernels that do
# not know the advice works under the emulator too.
HONEST = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void *addr, size_t n, int advice)
{
	if (advice != 23) /* MADV_POPULATE_WRITE */
		return (int)syscall(SYS_madvise, addr, n, advice);
	errno = EINVAL;
	return -1;
}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arm64")
    for name in ("kvpiped", "kvpipectl", "libkvpipe0", "libkvpipe-dev"):
        subprocess.run(["dpkg-deb", "-x", package(name, "deb", "arm64"), folder], check=True)
    return folder


def emulated(program, *arguments):
    return ["qemu-aarch64", "-L", SYSROOT, program, *arguments]


def test_a_hand_over(tree, tmp_path):
    library = tree / "usr/lib/aarch64-linux-gnu"
    program = tmp_path / "handover"
    subprocess.run(["aarch64-linux-gnu-gcc", "-D_GNU_SOURCE", ROOT / "examples/c/handover.c", "-o", program, f"-I{tree / 'usr/include'}",
                    f"-L{library}", "-lkvpipe", "-pthread"], check=True)
    (tmp_path / "honest.c").write_text(HONEST)
    subprocess.run(["aarch64-linux-gnu-gcc", "-shared", "-fPIC", tmp_path / "honest.c", "-o", tmp_path / "honest.so"], check=True)
    with tempfile.TemporaryDirectory(prefix="kvp-") as name:
        folder = Path(name)
        env = dict(os.environ, KVPIPE_SOCKET=str(folder / "kvpiped.sock"), KVPIPE_ADMIN=str(folder / "admin.sock"), LD_LIBRARY_PATH=str(library))
        with open(folder / "log", "wb") as log:
            daemon = subprocess.Popen(emulated(tree / "usr/bin/kvpiped", "--dev", "--listen", "off", "--node", "arm", "--state-dir", folder),
                                      stdout=log, stderr=log)
        try:
            listens(daemon, folder / "kvpiped.sock", folder / "log", LIMIT)
            subprocess.run(emulated("-E", f"LD_PRELOAD={tmp_path / 'honest.so'}", program), env=env, check=True, timeout=LIMIT)
            said = subprocess.run(emulated(tree / "usr/bin/kvpipectl", "status"), env=env, check=True, timeout=LIMIT, stdout=subprocess.PIPE)
            assert b"arm" in said.stdout
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(LIMIT)


def test_the_debian_names_of_the_machine(tree):
    assert (tree / "usr/lib/aarch64-linux-gnu/libkvpipe.so.0").exists()
