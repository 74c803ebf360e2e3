"""The SBOM names every module that is linked in, with its licence, and is the same each time."""

import json
import subprocess

import pytest
from places import BIN, ROOT

PROGRAMS = [BIN / "kvpiped", BIN / "kvpipectl"]


def write():
    command = ["python3", "-B", "packaging/sbom.py", "1.2.3", "1700000000", "2.34", *PROGRAMS]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


@pytest.fixture(scope="module")
def sbom():
    return json.loads(write())


def test_the_same_each_time(sbom):
    assert json.loads(write()) == sbom
    assert sbom["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert str(ROOT) not in json.dumps(sbom)


def test_every_module_is_named(sbom):
    named = {(c["name"], c["version"]) for c in sbom["components"]}
    for program in PROGRAMS:
        linked = subprocess.run(["go", "version", "-m", program], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
        modules = [tuple(line.split()[1:3]) for line in linked.split("\n") if line.startswith("\tdep\t")]
        assert modules and set(modules) <= named
    assert {"kvpiped", "kvpipectl", "libkvpipe", "kvpipe", "glibc", "stdlib"} <= {name for name, _ in named}


def test_every_part_has_a_licence_and_every_reference_a_part(sbom):
    parts = [*sbom["components"], sbom["metadata"]["component"]]
    references = [part["bom-ref"] for part in parts]
    assert len(references) == len(set(references))
    assert all(part["licenses"][0]["license"]["id"] for part in parts)
    for edge in sbom["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= set(references)
    # What NOTICE says that programs contain.
    found = {part["licenses"][0]["license"]["id"] for part in parts if part["name"] != "glibc"}
    assert found <= {"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause"}
