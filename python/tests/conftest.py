"""What all tests share. Each test must give back its descriptors, threads and mappings."""

import gc
import os
import pathlib
import signal
import tempfile
import threading

import kvpipe
import pytest
from caches import Cache
from daemons import READER, ROOT, Daemon, logs

os.environ.setdefault("KVPIPE_LIBRARY", str(ROOT / "build/lib/libkvpipe.so.0"))


def _interrupt(*_):
    raise KeyboardInterrupt


def pytest_configure(config):
    # SIGTERM must end the daemons, too, which are in sessions of their own. SIGINT is ignored in the background.
    signal.signal(signal.SIGTERM, _interrupt)


def _descriptors():
    out = {}
    daemons = {str(log.fileno()) for log in logs}
    for name in set(os.listdir("/proc/self/fd")) - daemons:
        try:
            out[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the listing's own
            pass
    return out


def _threads():
    return {t for t in threading.enumerate() if t.name != READER}


def _mappings():
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return sum("memfd:" in line for line in maps)


@pytest.fixture(autouse=True)
def leaves_nothing(request):
    # Daemons outlive single tests, so they are started first and not counted.
    if {"near", "far", "pair", "apart", "ends", "sockets", "engines", "sides"} & set(request.fixturenames):
        request.getfixturevalue("near")
    if {"far", "apart", "ends", "sockets", "engines", "sides"} & set(request.fixturenames):
        request.getfixturevalue("far")
    if "nodes" in request.fixturenames:
        request.getfixturevalue("nodes")
    gc.collect()
    before, threads, maps = _descriptors(), _threads(), _mappings()
    yield
    gc.collect()
    after = _descriptors()
    assert not {fd: after[fd] for fd in set(after) - set(before)}, "descriptors left open"
    assert not _threads() - threads, "threads left running"
    assert _mappings() <= maps, "mappings left behind"


@pytest.fixture(scope="session")
def folder():
    # Paths of sockets are short: pytest's own folders would be too long.
    with tempfile.TemporaryDirectory(prefix="kvp-py-") as name:
        yield pathlib.Path(name)


@pytest.fixture(scope="session")
def near(folder):
    daemon = Daemon(folder / "near", "near", folder / "ca")
    yield daemon
    daemon.stop()


@pytest.fixture(scope="session")
def far(folder, near):
    daemon = Daemon(folder / "far", "far", folder / "ca", [f"near={near.ask('status')['advertise']}"])
    yield daemon
    daemon.stop()


@pytest.fixture
def name(request):
    """A name for a pipe or buffer that is this test's own: what an earlier test left lingers under its name."""
    return request.node.nodeid.rpartition("/")[2]


@pytest.fixture(params=["one node", "two nodes"])
def two(request, near, far):
    """Two engines, and how the second one names the node of the first."""
    there = near if request.param == "one node" else far
    with kvpipe.connect(near.socket, engine_id="a") as a, kvpipe.connect(there.socket, engine_id="b") as b:
        yield a, b, None if there is near else near.node


@pytest.fixture
def pair(near):
    """A producer and a consumer on one node."""
    with Cache(near.socket, "producer") as producer, Cache(near.socket, "consumer") as consumer:
        yield producer, consumer


@pytest.fixture
def apart(near, far):
    """A producer and a consumer on two nodes."""
    with Cache(near.socket, "producer") as producer, Cache(far.socket, "consumer") as consumer:
        yield producer, consumer
