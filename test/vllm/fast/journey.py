"""One seeded run: requests go through a prefill and a decode engine while things happen to them, in any order."""

import base64
import copy
import json
import random
import time

from engine import SLOTS, Engine
from routers import load
from text import VOCABULARY, Text

ASK = {"do_remote_decode": True, "do_remote_prefill": False}
ROUTERS = [r for r in load() if r.decode_request({"kv_transfer_params": {"mark": 1}}).get("kv_transfer_params", {}).get("mark")]

#: what becomes of a request; those in the second line are answered by what decode computes itself
FATES = ["handed over", "handed over", "handed over", "handed over", "local", "asked twice", "part of it",
         "no dict", "wrong token", "wrong key", "wrong node", "other prompt",
         "rejected", "lost", "aborted in prefill", "aborted in decode", "aborted anywhere"]

WITHIN = 300  # seconds for a run: all that waits in it has deadlines of at most a few


class Journey:
    """A request on its way. ``fate`` is drawn from FATES. ``early``: both engines may have it at once, and decode loads layer by layer."""

    def __init__(self, number, rng, shared, layerwise):
        self.id, self.fate = f"r{number}", rng.choice(FATES)
        length = rng.choice([rng.randint(1, 40), rng.randint(17, 130), 16 * rng.randint(1, 8)])
        self.prompt = (shared[:rng.choice([0, 16, 48, 70])] + [rng.randrange(2, VOCABULARY) for _ in range(length)])[-200:]
        self.most = rng.choice([1, 2, 5, 12])
        self.router = rng.choice(ROUTERS)
        self.early = layerwise and rng.random() < 0.8
        self.state = "new"
        self.decodes = []  # its ids on the decode engine


class Run:
    """Two engines at two daemons, or at one."""

    def __init__(self, seed, model, sockets):
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.told = []  # what happened, for who looks at a failure
        layerwise = self.layerwise = seed // 3 % 3 == 0
        window = rng.choice([24, 40]) if seed % 9 > 6 else None  # layer by layer is not for those
        options = dict(window=window, lease=2.0, timeout=0.5 if layerwise else 2.0, kv_recompute_threshold=rng.choice([1, 17, 64]), layerwise=layerwise)
        self.p, self.d = (
            Engine(model, socket, f"{name}{seed}", blocks=rng.choice([17, 24, 60]), budget=16 if layerwise else rng.choice([32, 64, 256]),
                   seqs=rng.choice([1, 4]), batches=1 if layerwise else rng.choice([1, 2]),
                   policy="fail" if name == "d" and rng.random() < 0.2 else "recompute", **options)
            for name, socket in zip("pd", sockets))
        self.d.meanwhile = self._meanwhile
        for node in ("near", "far"):  # else few loads are waited for: it is the first that tells
            self.d.scheduler.connector._scheduler._at_once.met(node, 1e12)
        shared = [rng.randrange(2, VOCABULARY) for _ in range(80)]
        self.journeys = [Journey(i, rng, shared, layerwise) for i in range(rng.randint(1, 7))]
        for journey in self.journeys[::2]:
            if window and len(journey.prompt) > window:  # the last token looks at a block that the next one's window has left
                del journey.prompt[len(journey.prompt) - (len(journey.prompt) + 1 - window) % SLOTS:]
        self.quiet, self.until = 0, time.monotonic() + WITHIN

    def turn(self):
        """Something happens. False when every request has its end, and both engines are idle."""
        ready = [j for j in self.journeys if j.state not in ("decoding", "over")]
        if not ready and not self.p.busy and not self.d.busy:
            return False
        assert time.monotonic() < self.until, (
            f"not over within {WITHIN} s: {[(j.id, j.fate, j.state) for j in self.journeys]}")
        self._event(ready)
        return True

    @property
    def waits(self):
        """Whether both engines only wait for the daemons."""
        return self.quiet > 12

    def filenos(self):
        return {fd for engine in (self.p, self.d) if engine.busy for fd in engine.filenos()}

    def check(self):
        for journey in self.journeys:
            self._check(journey)
        for engine in (self.p, self.d):
            engine.settle()
            engine.assert_empty()

    def _event(self, ready):
        choice = self.rng.random()
        if choice < 0.30 and ready:
            self._advance(self.rng.choice(ready))
        elif choice < (0.36 if self.layerwise else 0.33):
            self._interrupt(self.rng.choice(self.journeys))
        elif choice < (0.42 if self.layerwise else 0.34):
            self._preempt(self.rng.choice([self.p, self.d]))
        else:
            self._step(self.rng.choice([self.p, self.d]))

    def _preempt(self, engine):
        if self.layerwise and self.rng.random() < 0.3:
            self.told.append(f"all that {engine.name} offers withdrawn")
            engine.scheduler.reset_connector_cache()
        else:
            self.told.append(f"all of {engine.name} preempted")
            engine.preempt()

    def _step(self, engine):
        if engine.busy and engine.step():
            self.quiet = 0
            return
        self.quiet += 1

    def _meanwhile(self):
        """Prefill goes on, perhaps not far enough, and may lose its blocks."""
        for _ in range(self.rng.choice([0, 1, 50, 50, 50])):
            if not self.p.busy or not self.p.step():
                break
            if self.rng.random() < 0.1:
                self._preempt(self.p)

    # ---- a request's way

    def _advance(self, j):
        if j.state == "new":
            self.told.append(f"{j.id} ({j.fate}, {len(j.prompt)} tokens) comes")
            if j.fate == "local":
                self._decode(j, j.id, None)
            else:
                self.p.add(j.id, j.prompt, 1, {**ASK, **self._pair(j)})
                j.state = "prefilling"
        elif j.state == "prefilling" and (j.early or j.id in self.p.ends):
            self._prefilled(j)

    def _pair(self, j):
        """What a proxy gives both requests of a pair."""
        if not j.early:
            return {}
        token = base64.urlsafe_b64encode(f"{self.seed} {j.id}".ljust(16).encode()).decode()
        return {"transfer_id": f"{self.seed} {j.id}", "kvpipe": {"v": 1, "node": self.p.worker.get_handshake_metadata().node, "token": token}}

    def _prefilled(self, j):
        end = self.p.ends.get(j.id)
        if end not in ("length", "stop") and not j.early or j.fate == "lost":
            self.told.append(f"{j.id} ends after prefill ({end})")
            j.state = "over"
            return
        if j.early:
            params = {"do_remote_prefill": True, **self._pair(j)}
        else:
            params = j.router.decode_request({"kv_transfer_params": self.p.params[j.id]}).get("kv_transfer_params")
        prompt = j.prompt
        if params and "kvpipe" in params:
            params = self._tamper(j.fate, params)
        if j.fate == "other prompt":
            prompt = j.prompt = [*j.prompt[:-1], j.prompt[-1] % (VOCABULARY - 2) + 2]
        self.told.append(f"{j.id} goes to decode")
        self._decode(j, j.id, params)
        if j.fate == "asked twice":
            self.d.add(f"{j.id}b", prompt, j.most, copy.deepcopy(params))
            j.decodes.append(f"{j.id}b")
        elif j.fate == "rejected":
            self.d.abort(j.id)

    def _decode(self, j, request_id, params):
        self.d.add(request_id, j.prompt, j.most, params)
        j.decodes.append(request_id)
        j.state = "decoding"

    def _tamper(self, fate, params):
        params = json.loads(json.dumps(params))
        ours = params["kvpipe"]
        if fate == "no dict":
            del params["kvpipe"]
        elif fate == "wrong token":
            ours["token"] = "A" * 22
        elif fate == "wrong key":
            if "key" in ours:
                ours["key"] += "x"
            else:
                params["transfer_id"] += "x"
        elif fate == "wrong node":
            ours["node"] = "nowhere"
        elif fate == "part of it" and "tokens" in ours:
            ours["tokens"] = max(ours["tokens"] // 32 * 16, 1)
        return params

    def _interrupt(self, j):
        """A client that goes away, or an engine that is told so."""
        if j.fate in ("aborted in prefill", "aborted anywhere") and j.state != "new" and j.id not in self.p.ends:
            self.told.append(f"{j.id} aborted in prefill")
            self.p.abort(j.id)
        elif j.fate in ("aborted in decode", "aborted anywhere"):
            for request_id in j.decodes:
                if request_id not in self.d.ends:
                    self.told.append(f"{request_id} aborted in decode")
                    self.d.abort(request_id)

    # ---- afterwards

    def _check(self, j):
        if j.id in self.p.ends and self.p.ends[j.id] != "abort":
            assert self.p.answers[j.id] == Text(j.prompt[:-1] + [self.p._texts[j.id].prompt[-1]]).answer(1)
            assert j.early or (self.p.params[j.id] is not None) == (j.id in self.p.sent), f"{j.id}: its blocks were not given back once"
        for request_id in j.decodes:
            end = self.d.ends[request_id]
            if end in ("length", "stop"):
                assert self.d.answers[request_id] == Text(j.prompt).answer(j.most), f"{request_id} ({j.fate}): wrong tokens"
            elif end == "error":
                assert j.early or request_id in self.d.failed | self.d.received, f"{request_id} failed, but not its load"
            else:
                assert end == "abort" and ("abort" in j.fate or j.fate == "rejected"), f"{request_id} ({j.fate}) ended: {end}"

    def loaded(self):
        """Requests whose KV came from the other engine."""
        return [j for j in self.journeys for r in j.decodes if r in self.d.received - self.d.failed | self.d.awaited]

    def close(self):
        self.p.close()
        self.d.close()
