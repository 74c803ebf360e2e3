"""What a release of vLLM moves is mended in one file of the connector: no other may know vLLM. No file is long."""

import ast
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "kvpipe/vllm"


def of_vllm(source):
    """Lines of a module that import vLLM, or have importlib do it."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if called in ("import_module", "__import__"):
                names = [str(getattr(arg, "value", "vllm")) for arg in node.args[:1]]  # a name that is put together may be any
        if any(name.split(".")[0] == "vllm" for name in names):
            yield node.lineno


@pytest.mark.parametrize("source", ["import vllm.config", "from vllm.v1 import request", "import importlib as i; i.import_module(name)"])
def test_what_is_looked_for(source):
    assert list(of_vllm(source)) == [1]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_compat_alone_imports_vllm(path):
    assert bool(list(of_vllm(path.read_text()))) == (path.name == "compat.py")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_each_file_has_one_idea(path):
    assert len(path.read_text().splitlines()) <= 200
