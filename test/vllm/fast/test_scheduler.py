"""vLLM's own scheduler with our connector on both sides, against real daemons: SEEDS=500 runs of requests that are added,
aborted, preempted, refused, forgotten and finished in every order. SEED=n has that run alone."""

import collections
import contextlib
import http.client
import json
import os
import socket
import time

import models
import places
import pytest
from engine import wait
from journey import FATES, Run

ALONE = int(os.environ["SEED"]) if os.environ.get("SEED") else None
TOGETHER = 25  # runs at a time
SEEDS = int(os.environ.get("SEEDS") or 500) if ALONE is None else 1


class Admin(http.client.HTTPConnection):
    """The daemon's own word on what it holds."""

    def __init__(self, path):
        super().__init__("kvpiped")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)

    def held(self):
        self.request("GET", "/v1/status")
        counts = json.loads(self.getresponse().read())["counts"]
        return {k: counts[k] for k in ("offers", "transfers", "holds_shared", "holds_exclusive", "parked") if counts[k]}


@pytest.fixture(scope="module")
def model():
    return models.opt(places.MADE / "facebook/opt-125m")


def nothing_held(daemons):
    """What the last step asked for has reached the daemon, or does in a moment."""
    for daemon in daemons:
        admin = Admin(daemon.admin)
        try:
            until = time.monotonic() + 60
            while held := admin.held():
                assert time.monotonic() < until, f"{daemon.node} still holds {held}"
        finally:
            admin.close()


def story(run, error):
    return AssertionError("seed %d: %s\n  %s\nagain: SEED=%d make test-vllm-fast FAST=fast/test_scheduler.py" % (
        run.seed, error, "\n  ".join(run.told[-60:]), run.seed))


def together(runs):
    """All of them, by turns: most of a run's time is waiting."""
    going = list(runs)
    while going:
        for run in list(going):
            try:
                for _ in range(50):
                    if not run.turn():
                        going.remove(run)
                        run.check()
                        break
                    if run.waits:
                        break
            except Exception as error:
                raise story(run, repr(error)) from error
        if going and all(run.waits for run in going):
            wait([fd for run in going for fd in run.filenos()])


@pytest.mark.parametrize("part", range(0, SEEDS, TOGETHER))
def test_runs(part, model, near, far):
    """Within a node, and between two."""
    seeds = range(part, min(part + TOGETHER, SEEDS)) if ALONE is None else [ALONE]
    with contextlib.ExitStack() as stack:
        runs = []
        for seed in seeds:
            daemons = (near, near if seed % 3 == 0 else far)
            runs.append(Run(seed, model, [d.socket for d in daemons]))
            stack.callback(runs[-1].close)
        together(runs)
        nothing_held([near, far])
    fates, loaded, awaited = collections.Counter(), collections.Counter(), sum(len(run.d.awaited) for run in runs)
    for run in runs:
        fates.update(j.fate for j in run.journeys)
        loaded.update(j.fate for j in run.loaded())
    print(f"{len(runs)} runs, {sum(fates.values())} requests, {awaited} waited for, loaded: {dict(loaded)}")
    assert not {"no dict", "wrong token", "wrong key", "wrong node", "other prompt", "local"} & set(loaded), loaded
    if len(runs) == TOGETHER:
        assert len(fates) > len(set(FATES)) / 2 and loaded["handed over"], (fates, loaded)
