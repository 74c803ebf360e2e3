"""Minutes of mixed load on two prefill and two decode instances, of which one at a time is killed and started again."""

import contextlib
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from harness.fleet import Proxy
from harness.handover import prompt, prompts, tokens
from harness.wait import becomes

pytestmark = pytest.mark.soak

CLIENTS = 6
LIFE = 40  # seconds between two deaths
GROWTH = 96 << 20  # bytes that a daemon's memory may vary by


class Outages:
    """When a decode instance was away: only then may a user see an error."""

    def __init__(self):
        self.lock, self.spans = threading.Lock(), []

    @contextlib.contextmanager
    def one(self):
        span = [time.monotonic(), float("inf")]
        with self.lock:
            self.spans.append(span)
        try:
            yield
        finally:
            span[1] = time.monotonic()

    def during(self, began):
        with self.lock:
            return any(end >= began for _, end in self.spans)


class Load:
    def __init__(self, proxy, expected, until, outages):
        self.proxy, self.expected, self.until, self.outages = proxy, expected, until, outages
        self.done = self.left = self.lost = 0
        self.wrong = []

    def client(self, number):
        dice = random.Random(number)
        with httpx.Client(base_url=self.proxy.url, timeout=120, trust_env=False) as http:
            while time.monotonic() < self.until and not self.wrong:
                if dice.random() < 0.15:
                    self.leave(http, dice)
                else:
                    self.ask(http, dice)

    def ask(self, http, dice):
        ids, right = dice.choice(self.expected)
        began = time.monotonic()
        try:
            answer = http.post("/v1/completions", json={"model": "tiny", "prompt": ids, "temperature": 0,
                                                        "max_tokens": 16, "ignore_eos": True, "return_token_ids": True})
            answer.raise_for_status()
            said = tokens(answer.json())
        except httpx.HTTPError as error:
            self.lost += 1
            if not self.outages.during(began):
                self.wrong.append(f"{len(ids)} tokens: {error!r}")
            return
        self.done += 1
        if said != right:
            self.wrong.append(f"{len(ids)} tokens: {said}, not {right}")

    def leave(self, http, dice):
        """Goes away before or while the answer comes."""
        ids, _ = dice.choice(self.expected)
        body = {"model": "tiny", "prompt": ids, "max_tokens": 400, "ignore_eos": True, "stream": True}
        with contextlib.suppress(httpx.HTTPError):
            if dice.random() < 0.5:
                http.post("/v1/completions", json=body, timeout=dice.uniform(0.01, 0.3))
            else:
                with http.stream("POST", "/v1/completions", json=body) as answer:
                    for _, _line in zip(range(dice.randrange(1, 40)), answer.iter_lines()):
                        pass
        self.left += 1


def usage(process):
    """(resident bytes, descriptors) of a process."""
    with open(f"/proc/{process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{process.pid}/fd"))


def kill_in_turn(fleet, engines, until, outages):
    """P, D, P, D; each is back before the next one goes."""
    pause, deaths = threading.Event(), 0
    while time.monotonic() + LIFE < until:
        pause.wait(LIFE)
        engine = engines[deaths % len(engines)]
        decodes = engine.name.startswith("decode")
        with outages.one() if decodes else contextlib.nullcontext():
            engine.kill()
            engine.start()
            engine.ready()
        deaths += 1
    return deaths


def test_mixed_load(fleet, reference, request, capsys):
    minutes = request.config.getoption("--soak")
    engines = [fleet.prefill(0), fleet.decode(0), fleet.prefill(1), fleet.decode(1)]
    for engine in engines:
        engine.ready()
    ids = prompts() + [prompt(n, "soak") for n in range(20, 1500, 90)]
    with ThreadPoolExecutor(8) as pool:
        expected = list(zip(ids, map(tokens, pool.map(reference.completion, ids))))
    outages = Outages()
    with Proxy([engines[0], engines[2]], [engines[1], engines[3]]) as proxy:
        warm = Load(proxy, expected, time.monotonic() + 20, outages)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(warm.client, range(CLIENTS)))
        fleet.settled()
        before = {name: usage(daemon.process) for name, daemon in fleet.nodes.items()}
        until = time.monotonic() + 60 * minutes
        load = Load(proxy, expected, until, outages)
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            deaths = pool.submit(kill_in_turn, fleet, engines, until, outages)
            list(pool.map(load.client, range(100, 100 + CLIENTS)))
    with capsys.disabled():
        print(f"\nsoak: {load.done} answers, {load.left} clients left, {load.lost} lost with their decode instance, "
              f"{deaths.result()} instances killed, in {minutes:g} minutes")
    assert not warm.wrong + load.wrong
    assert load.done > 0
    fleet.settled()
    for name, daemon in fleet.nodes.items():
        becomes(lambda d=daemon, n=name: usage(d.process)[1] <= before[n][1], True)
        assert usage(daemon.process)[0] < before[name][0] + GROWTH, f"{name} grew"
