"""What the cases stand on: a fleet for all of them, and nothing left in engines and daemons after each."""

import os
import signal

import pytest

from harness import instance, models
from harness.fleet import Fleet
from harness.handover import WrongTokens

os.environ.update({name: value for name, value in instance.ENV.items() if name.startswith(("HF_", "TRANSFORMERS_"))})


def _interrupt(*_):
    raise KeyboardInterrupt


def pytest_addoption(parser):
    parser.addoption("--soak", type=float, default=15, help="minutes of mixed load")


def pytest_configure(config):
    # Who ends the tests ends what they have started. In the background SIGINT is ignored.
    signal.signal(signal.SIGTERM, _interrupt)
    config.addinivalue_line("markers", "core: what `make test-vllm` runs")
    config.addinivalue_line("markers", "soak: minutes of mixed load, by itself")


@pytest.fixture(scope="session")
def fleet():
    models.path("llama")
    fleet = Fleet()
    try:
        fleet.reference(), fleet.prefill(), fleet.decode()  # all three at the same time
        yield fleet
    finally:
        fleet.close()


@pytest.fixture(autouse=True)
def settles(fleet):
    yield
    fleet.settled()


@pytest.fixture
def reference(fleet):
    return fleet.reference().ready()


@pytest.fixture
def p(fleet):
    return fleet.prefill().ready()


@pytest.fixture
def d(fleet):
    return fleet.decode().ready()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure comes with the last words of every engine and daemon. Wrong tokens are written down: they are no matter of time."""
    outcome = yield
    report = outcome.get_result()
    if call.excinfo and isinstance(call.excinfo.value, WrongTokens):
        item.config.cache.set("kvpipe/wrong", [*item.config.cache.get("kvpipe/wrong", []), item.nodeid])
    fleet = item.funcargs.get("fleet") if report.failed else None
    if fleet is not None:
        for name, log in fleet.logs():
            report.sections.append((f"log of {name}", "".join(log[-25:])))
