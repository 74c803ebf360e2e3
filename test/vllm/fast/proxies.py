"""The example's proxy, as a module."""

import importlib.util

from places import ROOT


def load():
    spec = importlib.util.spec_from_file_location("kvpipe_example_proxy", ROOT / "examples/vllm/proxy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
