"""vLLM's own tests of connectors, from its source distribution, with ours: those of the scheduler's side."""

import importlib.metadata
import os
import subprocess
import sys
import xml.etree.ElementTree as xml

import models
import places
import pytest
import sources

VERSION = importlib.metadata.version("vllm").partition("+")[0]


def listed(name):
    """Lines "name: rest" of a text file beside this one."""
    lines = (places.HERE / name).read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def test_vllms_own_tests_pass(tmp_path):
    top = sources.tests(VERSION)
    if top is None:
        pytest.skip(f"the source distribution of vLLM {VERSION} is not there (make vllm-sources)")
    baseline, exceptions = listed("upstream_baseline.txt"), listed("upstream.txt")
    models.opt(places.MADE / "facebook/opt-125m")
    unit, report = top / "tests/v1/kv_connector/unit", tmp_path / "report.xml"
    path = [str(top), str(places.HERE), str(places.ROOT / "python/tests"), *sys.path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "upstream_plugin", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short",
         f"--rootdir={top}", "-c", str(top / "pyproject.toml"), f"--junitxml={report}", *(str(unit / f"{f}.py") for f in baseline)],
        cwd=places.MADE, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p)}, capture_output=True, text=True)
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    cases = list(xml.parse(report).getroot().iter("testcase"))
    bad = {f"{c.get('classname').rpartition('.')[2]}::{c.get('name')}" for c in cases if any(
        c.find(kind) is not None for kind in ("failure", "error", "skipped"))}
    assert bad == set(exceptions), done.stdout[-12000:]
    assert len(cases) == sum(map(int, baseline.values()))
