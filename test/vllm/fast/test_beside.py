"""Beside another connector, as in MultiConnector, whose loads fail as often as not: vLLM may believe what is computed on them, but nothing
of that is offered. Requests come, share what they have, and go in any order."""

import contextlib
import random

import models
import numpy
import places
from engine import SLOTS, Engine, wait
from text import VOCABULARY, Text

ASK = {"do_remote_decode": True, "do_remote_prefill": False}
#: what is in blocks that were not loaded, and what is computed on that
NOT_LOADED, WRONG = 0xBAD, 0xBADBAD


class Beside(Engine):
    """Its other connector loads what it is told to, into the step in which a request begins. ``offered``: how many of its requests were,
    ``wrong``: how often vLLM computed on what was not there."""

    def __init__(self, rng, *where, **how):
        self._rng, self._others, self._told, self._bad = rng, {}, {}, set()
        self.offered = self.wrong = 0
        super().__init__(*where, **how)
        self._matched, self._allocated, self._finished, self._failed = map(self._instead, (
            "get_num_new_matched_tokens", "update_state_after_alloc", "request_finished_all_groups", "get_block_ids_with_load_errors"))

    def _instead(self, hook):
        side = self.worker if hook == "get_block_ids_with_load_errors" else self.scheduler.connector
        ours = getattr(side, hook)
        setattr(side, hook, getattr(self, f"_{hook}"))
        return ours

    def loads(self, request_id, tokens, fails):
        self._others[request_id] = tokens, fails

    def _get_num_new_matched_tokens(self, request, computed):
        stop = min(self._others.get(request.request_id, (0, False))[0], (request.num_tokens - 1) // SLOTS * SLOTS)
        if request.num_preemptions or stop <= computed:
            return self._matched(request, computed)
        self._told[request.request_id] = computed, stop
        return stop - computed, False

    def _update_state_after_alloc(self, request, blocks, count):
        if count and request.request_id in self._told:
            (start, stop), (_, fails), count = self._told.pop(request.request_id), self._others.pop(request.request_id), 0
            table = blocks.get_block_ids()[0][start // SLOTS:stop // SLOTS]
            bad = set(self._rng.sample(table, self._rng.randint(1, len(table)))) if fails else set()
            kv = self._texts[request.request_id].kv(start, stop).reshape(-1, SLOTS)
            for block, content in zip(table, kv):
                self._kv[block] = NOT_LOADED if block in bad else content
            self._bad |= bad
        self._allocated(request, blocks, count)

    def _get_block_ids_with_load_errors(self):
        bad, self._bad = self._bad, set()
        return self._failed() | bad

    def _request_finished_all_groups(self, request, tables):
        waits, params = self._finished(request, tables)
        if params:
            self.offered += 1
            tokens = params["kvpipe"]["tokens"]
            have, want = self._kv[tables[0]].reshape(-1)[:tokens], self._texts[request.request_id].kv(0, tokens)
            assert numpy.array_equal(have, want), f"{request.request_id} is offered: wrong KV at position {int(numpy.argmax(have != want))}"
        return waits, params

    def _waited(self, output, ended):
        self._wrong.clear()

    def _write(self, request_id, start, stop):
        super()._write(request_id, start, stop)
        if request_id in self._wrong:
            self.wrong += 1
            table, positions = self._tables[request_id], numpy.arange(start, stop)
            self._kv[numpy.take(table, positions // SLOTS), positions % SLOTS] = WRONG


def prompts(rng):
    """That begin alike."""
    same, ends = ([rng.randrange(2, VOCABULARY) for _ in range(n)] for n in (160, 48))
    return lambda: same[:rng.choice([64, 80, 128, 160])] + ends[:rng.choice([0, 1, 20, 40])]


def run(seed, socket):
    """(how many requests were offered, how often vLLM computed on what was not there)"""
    rng = random.Random(seed)
    engine = Beside(rng, models.opt(places.MADE / "facebook/opt-125m"), socket, f"beside {seed}", blocks=rng.choice([17, 24, 60]),
                    budget=rng.choice([32, 64, 256]), seqs=rng.choice([2, 4, 8]), batches=1 + seed % 2)
    engine.scheduler.scheduler_config.long_prefill_token_threshold = rng.choice([0, 16, 32])
    with contextlib.closing(engine):
        prompt, coming, there = prompts(rng), [f"r{i}" for i in range(rng.randint(5, 14))], []
        while coming or engine.busy:
            happens = rng.random()
            if coming and happens < 0.25:
                there.append(coming.pop())
                if rng.random() < 0.6:
                    engine.loads(there[-1], SLOTS * rng.randint(1, 9), rng.random() < 0.8)
                engine.add(there[-1], prompt(), rng.choice([1, 1, 3]), dict(ASK))
            elif there and happens < 0.30:
                engine.abort(rng.choice(there))
            elif happens < 0.31:
                engine.preempt()
            elif engine.busy and not engine.step():
                engine.scheduler.reset_connector_cache()  # nobody comes for what is offered
                wait(engine.filenos())
        engine.settle()
        return engine.offered, engine.wrong


#: runs in which it would be, if such blocks were still found, if who had found them were believed, or if only that were out of reach of
#: which somebody still has the blocks
SEEDS = [0, 1, 2, 14], [12, 28], [215]


def test_nothing_is_offered_that_was_computed_on_what_was_not_there(near):
    offered, wrong = zip(*(run(seed, near.socket) for seeds in SEEDS for seed in seeds))
    assert sum(offered) > 10 and sum(wrong) > 10, "else this says nothing"


class Believing(Beside):
    """Whoever has computed on what was not there goes on as if it had been."""

    def _write(self, request_id, start, stop):
        super()._write(request_id, start, stop)
        self._wrong.pop(request_id, None)

    def all_of(self, *requests):
        """What they are answered, one after the other."""
        for name, prompt, most in requests:
            self.add(name, prompt, most, dict(ASK))
            while name not in self.ends:
                self.step()
        return [self.answers[name] for name, _, _ in requests]


def believing(near, name, batches):
    return contextlib.closing(Believing(random.Random(0), models.opt(places.MADE / "facebook/opt-125m"), near.socket, name, blocks=60, budget=256,
                                        batches=batches))


def long_winded(tokens, answer):
    """A prompt that is answered at such length."""
    return next(p for p in (list(range(k, k + tokens)) for k in range(2, 200)) if len(Text(p).answer(answer)) == answer)


def test_nor_of_what_was_computed_in_the_step_in_which_its_request_was_aborted(near):
    """vLLM ends whoever is not wanted any more before it looks at what the step says of them. Others find that, as soon as one of them has
    computed what lies before it."""
    prompt = long_winded(121, 1)
    with believing(near, "aborted in a step", 1) as engine:
        engine.loads("r", 64, True)
        engine.add("r", prompt, 3, dict(ASK))
        output = engine.scheduler.schedule()
        result = engine._execute(output)
        engine.abort("r")
        engine._update(output, result)
        assert engine.all_of(("computes", prompt, 1), ("finds", prompt, 1)) == [Text(prompt).answer(1)] * 2
        assert engine.params["finds"] and engine.wrong == 1


def test_nor_of_what_one_that_had_found_them_computed_last(near):
    """With asynchronous scheduling vLLM has that found in the moment in which the request ends."""
    prompt = long_winded(121, 8)
    answer = Text(prompt).answer(8)
    with believing(near, "computed last", 2) as engine:
        engine.loads("r", 64, True)
        engine.add("r", prompt, 1, dict(ASK))
        engine.step()
        assert engine.all_of(("believes", prompt, 8), ("computes", prompt, 8)) == [answer] * 2
        assert engine.wrong > 2 and not engine.params["believes"] and engine.params["computes"]
        engine.all_of(("finds", prompt + answer + [3], 1))
        assert engine.params["finds"]
