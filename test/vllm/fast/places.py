"""Where things lie: what is built, what was downloaded, what is made for tests."""

import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build"
SOURCES = BUILD / "vllm-src"
MADE = BUILD / "test/vllm-fast"

# Offline, on a CPU, one process: before vLLM is imported.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_CI_ENV": "1", "VLLM_LOGGING_LEVEL": "ERROR",
    "KVPIPE_LIBRARY": str(BUILD / "lib/libkvpipe.so.0"), "KVPIPE_BIN": str(BUILD / "bin"),
}


def prepare():
    """Sets what of it is not set."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
