"""What the fast tests stand on: real daemons, and the leak checks of the Python package's own tests."""

import gc
import importlib.util
import sys
import types

import places
import pytest

places.prepare()
PACKAGE = places.ROOT / "python/tests"
sys.path[:0] = [str(places.HERE), str(PACKAGE)]

_spec = importlib.util.spec_from_file_location("package_conftest", PACKAGE / "conftest.py")
_package = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_package)

folder, near, far, leaves_nothing = _package.folder, _package.near, _package.far, _package.leaves_nothing
pytest_configure = _package.pytest_configure


def pytest_collection_finish():
    """What imports have made stays: the garbage collections around each test need not go through all of vLLM."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def node():
    """A session without a daemon."""
    from fakes import Session  # with vLLM, which not all tests need

    with Session() as session:
        yield session


@pytest.fixture
def clock(monkeypatch):
    """[now], for the scheduler's side: it passes when the test says so."""
    now = [100.0]
    for module in ("offers", "operations", "silence", "submissions", "waiting"):
        monkeypatch.setattr(f"kvpipe.vllm.{module}.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    return now
