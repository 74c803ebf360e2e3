"""The examples do what they say."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from daemons import BIN, ROOT


def run(script, *arguments, **environment):
    env = {**os.environ, "KVPIPE_BIN": str(BIN), **environment}
    done = subprocess.run([sys.executable, "-B", str(ROOT / "examples" / script), *arguments], env=env, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_handover(near):
    assert run("python/handover.py", KVPIPE_SOCKET=near.socket) == "163840 bytes handed over\n"


def test_pipe(near):
    out = run("python/pipe.py", KVPIPE_SOCKET=near.socket)
    assert out.endswith("('float32', (4,), 2.0)\nNone\n2 tokens agree, 2 bytes of keys\n")


@pytest.mark.parametrize("name, last", [("handover", "handover: ok"), ("pipe", "float32, 3 x 4: 0 ... 23\nNone")])
def test_c(near, name, last):
    done = subprocess.run([str(BIN / "examples" / name)], env={**os.environ, "KVPIPE_SOCKET": near.socket}, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0 and last in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("number", range(2))
def test_readme(near, tmp_path, number):
    """What a newcomer copies."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(snippets) == 2
    script = tmp_path / "readme.py"
    script.write_text(snippets[number])
    run(script, KVPIPE_SOCKET=near.socket)


@pytest.mark.parametrize("script, said", [
    ("1p1d.sh", "1p1d.sh MODEL"),
    ("xpyd.sh", "PREFILL=2 DECODE=2"),
    ("two-nodes.sh", "two-nodes.sh MODEL"),
])
def test_a_script_for_vllm_says_at_once_what_it_lacks(tmp_path, script, said):
    for program in ("bash", "dirname", "sed"):
        (tmp_path / program).symlink_to(shutil.which(program))
    for program in ("kvpiped", "kvpipectl"):
        (tmp_path / program).symlink_to("/bin/false")

    def run_it(*arguments):
        command = [str(ROOT / "examples/vllm" / script), *arguments]
        return subprocess.run(command, env={"PATH": str(tmp_path)}, text=True, capture_output=True, timeout=60)

    usage = run_it()
    assert usage.returncode == 2 and said in usage.stdout and ("PREFILL=2" in usage.stdout) == (script == "xpyd.sh")
    lacks = run_it("MODEL")
    assert lacks.returncode == 1 and "no vllm in PATH" in lacks.stderr and lacks.stderr.count("\n") == 1, lacks.stderr


def test_demo_with_a_short_prompt(tmp_path):
    pytest.importorskip("numpy")
    if not (BIN / "ref-memcpy").exists():
        pytest.skip(f"the reference programs are not in {BIN}")
    out = run("demo/demo.py", "--tokens", "1024", "--rounds", "1", "--json", str(tmp_path / "demo.json"))
    assert out.endswith("demo: ok\n")
    told = json.loads((tmp_path / "demo.json").read_text())
    assert [row["descriptors"] for row in told["handovers"]] == [2048] * 4 + [262144]
    assert all(row["gb_per_s"] > 0 and row["of_memcpy"] > 0 and row["of_tcp"] > 0 for row in told["handovers"])
    assert [row["name"] for row in told["small"]] == ["local", "tcp"] and all(row["p99_us"] for row in told["small"])


@contextlib.contextmanager
def demo_under_way(how):
    """A demo in a process group of its own, which heeds that signal and has begun its second scene; what it has said, and where its files are."""
    pytest.importorskip("numpy")
    if not (BIN / "ref-memcpy").exists():
        pytest.skip(f"the reference programs are not in {BIN}")
    with tempfile.TemporaryDirectory(prefix="kvp-", dir="/tmp") as folder:
        demo = subprocess.Popen(
            [sys.executable, "-B", str(ROOT / "examples/demo/demo.py"), "--tokens", "256", "--rounds", "1", "--json", f"{folder}/demo.json"],
            env={**os.environ, "KVPIPE_BIN": str(BIN), "TMPDIR": folder}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, preexec_fn=lambda: signal.signal(how, signal.SIG_DFL))
        said = ""
        while "A take is cancelled" not in said and (line := demo.stdout.readline()):
            said += line
        yield demo, said, folder


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_demo_that_is_ended_leaves_nothing(how):
    """As by a terminal that is closed, which tells the daemons too; folders for temporary files may have long names."""
    with demo_under_way(how) as (demo, said, folder):
        os.killpg(demo.pid, how)
        said += demo.communicate(timeout=100)[0]  # which all that it started have inherited
        assert demo.returncode == 130, said
        assert list(Path(folder).iterdir()) == [], said


def waits_for(pid, number):
    """Whether a process that is stopped has been sent a signal since."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) >> number - 1 & 1 for line in lines if line.startswith("ShdPnd:"))


def test_a_demo_that_is_interrupted_does_not_mind_how_its_daemons_end():
    """A terminal interrupts them too, and a daemon that is told to end before it has done so ends at once, with an error."""
    with demo_under_way(signal.SIGINT) as (demo, said, _):
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        pid = next(int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "kvpiped\n")
        os.kill(pid, signal.SIGSTOP)
        os.killpg(demo.pid, signal.SIGINT)
        deadline = time.monotonic() + 100
        while not waits_for(pid, signal.SIGTERM) and time.monotonic() < deadline:
            os.sched_yield()
        os.kill(pid, signal.SIGCONT)
        said += demo.communicate(timeout=100)[0]
        assert demo.returncode == 130 and said.endswith("demo: interrupted\n"), said
        assert "Traceback" not in said


def test_a_demo_that_is_ended_while_a_daemon_starts_leaves_nothing(tmp_path):
    """By a signal to it alone, and a daemon that would be ready at some time."""
    pytest.importorskip("numpy")
    (tmp_path / "kvpiped").write_text('#!/bin/sh\necho $$\nexec sleep 1000\n')
    (tmp_path / "kvpiped").chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="kvp-", dir="/tmp") as folder:
        demo = subprocess.Popen([sys.executable, "-B", str(ROOT / "examples/demo/demo.py"), "--tokens", "256"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, env={**os.environ, "KVPIPE_BIN": str(tmp_path), "TMPDIR": folder})
        pid = next((int(line) for line in demo.stdout if line.strip().isdigit()), None)
        assert pid, "the demo has started no daemon"
        demo.terminate()
        try:
            said = demo.communicate(timeout=100)[0]  # which its daemon has inherited
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("the demo is over, its daemon is not") from None
        assert demo.returncode == 130 and list(Path(folder).iterdir()) == [], said


def test_the_demo_ends_all_its_processes():
    """Also those that come after one that has not ended well."""
    script = """
import types, demo
from cluster import Failed
def bad():
    raise Failed("it crashed")
all_of_it = demo.Demo.__new__(demo.Demo)
all_of_it.processes = [types.SimpleNamespace(stop=lambda: print("ended")), *[types.SimpleNamespace(stop=bad)] * 2]
try:
    all_of_it.stop()
except Failed as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-B", "-c", script], cwd=ROOT / "examples/demo", text=True, capture_output=True, timeout=100)
    assert done.stdout == "ended\nit crashed\n", done.stdout + done.stderr
