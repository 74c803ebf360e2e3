"""Where numbers come from, and the file they go to."""
import datetime
import json
import os
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.split(":", 1)[1].split())
    return platform.machine()


def _autogroups():
    """Whether the kernel gives each terminal session its own share of the CPUs (README.md says what that does here)."""
    try:
        return pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return False


def report(**more):
    """The beginning of a JSON report, like that of `make bench`."""
    from importlib.metadata import version
    return {"version": (ROOT / "VERSION").read_text().strip(), "vllm": version("vllm"),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": {"cpu": _cpu(), "cpus": os.cpu_count(), "kernel": platform.release(),
                        "load": f"{os.getloadavg()[0]:.2f}", "autogroups": _autogroups()}, **more}


def line(report):
    at = report["machine"]
    groups = ", autogroups (bench/vllm/README.md)" if at["autogroups"] else ""
    return f"{at['cpu']}, {at['cpus']} CPUs, Linux {at['kernel']}{groups}, load {at['load']}, vLLM {report['vllm']}"


def write(report, path):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, allow_nan=False, default=str) + "\n")
