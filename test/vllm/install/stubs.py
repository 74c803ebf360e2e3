#!/usr/bin/env python3
"""Lets PyPI's torch, which is built for CUDA, be imported without the CUDA libraries.

usage: stubs.py SITE_PACKAGES

torch's own libraries name cuBLAS, cuDNN, NCCL and others as needed, 2.3 GB to download, of which a CPU calls nothing.
For each one that is missing this makes a library of that name in torch/lib with the symbols that are wanted of it, at
the versions that are wanted; each function ends the process. Needs gcc and readelf.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# Of the system, or loaded only when there is a driver.
SYSTEM = re.compile(r"ld-linux|libcuda\.so|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|util)\.so")

# Symbols without a version are told apart by the prefix that their library uses.
PREFIXES = {
    "libcublas": "cublas(?!Lt)",
    "libcublasLt": "cublasLt",
    "libcudnn": "cudnn",
    "libcufft": "cufft",
    "libcufile": "cuFile",
    "libcupti": "cupti",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse(?!Lt)",
    "libcusparseLt": "cusparseLt",
    "libnccl": "p?nccl",
    "libnvToolsExt": "nvtx",
    "libnvrtc": "nvrtc",
    "libnvshmem_host": "nvshmem|_Z.*nvshmem",
}

Symbol = collections.namedtuple("Symbol", "name version object")


def readelf(path, *flags):
    return subprocess.run(["readelf", "-W", *flags, str(path)], capture_output=True, text=True, check=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(path, "--dynamic"))


def version_owners(path):
    """Version name -> the library it is wanted from."""
    owners, library = {}, None
    for line in readelf(path, "--version-info").splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found[1]
        elif library and (found := re.search(r"Name: (\S+)", line)):
            owners[found[1]] = library
    return owners


def undefined(path):
    for line in readelf(path, "--dyn-syms").splitlines():
        field = line.split()
        if len(field) >= 8 and field[6] == "UND" and field[4] in ("GLOBAL", "WEAK"):
            name, _, version = field[7].partition("@")
            yield Symbol(name, version.lstrip("@"), field[3] == "OBJECT")


def wanted(folder, present):
    """Missing library -> the symbols that libraries in folder want of it."""
    libraries, symbols, owners = set(), set(), {}
    for path in sorted(folder.glob("*.so*")):
        missing = {name for name in needed(path) if name not in present and not SYSTEM.match(name)}
        if missing and not path.is_symlink():
            libraries |= missing
            symbols |= set(undefined(path))
            owners.update(version_owners(path))
    out = {}
    for library in sorted(libraries):
        prefix = PREFIXES.get(library.partition(".so")[0])
        out[library] = sorted(
            s for s in symbols
            if (owners.get(s.version) == library if s.version else prefix and re.match(prefix, s.name)))
    return out


def build(target, symbols):
    """One library; its functions abort, its objects are zeros."""
    lines = ["void abort(void);"]
    lines += [f"char {s.name}[4096];" if s.object else f"void {s.name}(void) {{ abort(); }}"
              for s in dict((s.name, s) for s in symbols).values()]
    versions = collections.defaultdict(list)
    for s in symbols:
        if s.version:
            versions[s.version].append(s.name)
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        source.write_text("\n".join(lines) + "\n")
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-o", str(target),
                   str(source)]
        if versions:
            script.write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items()))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main():
    site = pathlib.Path(sys.argv[1])
    folder = site / "torch/lib"
    present = {path.name for path in (*site.glob("nvidia/**/*.so*"), *folder.iterdir())}
    for library, symbols in wanted(folder, present).items():
        build(folder / library, symbols)
        print(f"{library}: {len(symbols)} symbols")


if __name__ == "__main__":
    main()
