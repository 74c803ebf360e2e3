"""Waiting for a daemon of a package."""

import sys

from places import ROOT

sys.path.insert(0, str(ROOT / "test/vllm"))
from harness.wait import eventually  # noqa: E402


def listens(daemon, socket, log, timeout):
    """Waits until the process has its socket; fails with its log when it ends instead."""

    def look():
        assert daemon.poll() is None, log.read_text()
        return socket.exists()

    try:
        eventually(look, timeout)
    except AssertionError as late:
        raise AssertionError(f"{late}: {log.read_text()}") from None
