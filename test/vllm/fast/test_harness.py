"""What cases with real engines stand on. Those that see wrong tokens are told from those that a busy machine fails, which get another try
(test/rigs/vllm.sh)."""

import json
import re
import subprocess
import sys

import pytest
from harness import instance
from harness.able import runs
from places import HERE

CASES = HERE.parent / "cases"
FAILING = """
import pytest
from harness.handover import equal, unequal

class Fleet:
    def settled(self): pass
    def logs(self): return []

@pytest.fixture(scope="session")
def fleet(): return Fleet()

def test_tokens(): equal([3], [4])
def test_text(): equal("a", "b")
def test_probabilities(): equal([0.1], pytest.approx([0.2], abs=1e-3))
def test_a_corrupted_block(): unequal([3], [3])
def test_right(): equal([3], [3]), unequal([3], [4])
def test_computed_again(): assert [7] == [1]
def test_too_late(): raise TimeoutError
"""


def test_a_wrong_answer_of_any_kind_is_written_down(tmp_path):
    (tmp_path / "test_cases.py").write_text(FAILING)
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "cases.conftest", "-o", f"cache_dir={tmp_path}/cache", f"--rootdir={tmp_path}", tmp_path]
    said = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, universal_newlines=True).stdout
    assert "6 failed, 1 passed" in said, said
    wrong = json.loads((tmp_path / "cache/v/kvpipe/wrong").read_text())
    assert [name.rpartition("::")[2] for name in wrong] == ["test_tokens", "test_text", "test_probabilities", "test_a_corrupted_block"]


def test_no_case_compares_answers_by_an_assert():
    for path in CASES.glob("test_*.py"):
        for line in path.read_text().splitlines():
            assert not re.search(r"assert .*(tokens\(|logprobs|content)", line), f"{path.name}: {line.strip()}: see harness/handover.py"


@pytest.mark.parametrize("first, last, among", [
    (32768, 60999, range(10000, 32768)),
    (1024, 60999, range(61000, 65536)),  # which leaves others only to root below
    (10500, 64800, range(10000, 65536)),
    (1024, 65535, range(10000, 65536)),
])
def test_ports_that_the_kernel_gives_to_nobody(first, last, among):
    assert instance.ports(first, last) == among


def test_no_free_port_is_an_error(monkeypatch):
    monkeypatch.setattr(instance, "ports", lambda *_: [1 << 16])
    monkeypatch.setattr(instance.socket.socket, "bind", refuses)
    with pytest.raises(OSError, match="none of 1000 ports"):
        instance.free_port()


def test_ports_that_go_together_are_free_together(monkeypatch):
    monkeypatch.setattr(instance, "ports", lambda *_: range(20000, 20300))
    monkeypatch.setattr(instance.socket.socket, "bind", lambda _, address: refuses() if address[1] % 2 == 1 else None)
    for _ in range(20):
        port = instance.free_port(50, 200)
        assert port % 2 == 0 and port + 200 < 20300
    with pytest.raises(OSError, match="none of 1000 ports"):
        instance.free_port(51)


def refuses(*_):
    raise PermissionError


class Plain:
    """An instance that is not up yet."""

    def __init__(self, ends):
        self.ends, self.log, self.killed = ends, ["RuntimeError: not on a CPU\n"], False

    def ready(self):
        raise AssertionError("it did not start")

    def ended(self):
        return self.ends

    def kill(self):
        self.killed = True


def test_what_vllm_does_not_run_here_is_skipped():
    plain = Plain(ends=True)
    with pytest.raises(pytest.skip.Exception, match="does not run two stages: .*not on a CPU"):
        runs(lambda name: plain, "two stages")
    assert plain.killed


def test_what_is_slow_to_start_is_not_skipped():
    with pytest.raises(BaseException) as seen:  # a skip is one
        runs(lambda name: Plain(ends=False), "two stages")
    assert seen.type is AssertionError
