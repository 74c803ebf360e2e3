"""One prompt through a prefill and a decode instance, as a proxy does it, with a look at each step."""

import random

from harness.models import VOCABULARY

# What a proxy for NIXL asks of a prefill instance.
ASK = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
       "remote_host": None, "remote_port": None}


class WrongTokens(AssertionError):
    """An answer is not what it should be. That is no matter of cores or time: such a case gets no other try."""


def equal(got, want, about="the answer"):
    """For all that an engine answers: tokens, texts, probabilities."""
    if not got == want:
        raise WrongTokens(f"{about}: {got!r}, not {want!r}")


def unequal(got, other, about="the answer"):
    if got == other:
        raise WrongTokens(f"{about}: still {got!r}")


def tokens(answer):
    return answer["choices"][0]["token_ids"]


def prompt(length, seed):
    """Token ids, of neither the start nor the end token."""
    return random.Random(f"{length} {seed}").choices(range(2, VOCABULARY), k=length)


def prefill(instance, ids, **fields):
    """The kv_transfer_params of P's answer, None when it makes none."""
    return instance.completion(ids, max_tokens=1, kv_transfer_params=dict(ASK), **fields)["kv_transfer_params"]


def decode(instance, ids, params, **fields):
    return instance.completion(ids, kv_transfer_params=params, **fields)


def handover(p, d, ids, **fields):
    """D's answer, after P has prefilled."""
    params = prefill(p, ids)
    assert params, f"{p.name} made no kv_transfer_params"
    return decode(d, ids, params, **fields)


def prompts():
    """Forty: around the ends of a block, short, longer than a chunk, and with the beginning of another one."""
    out = [prompt(n, "edge") for n in (2, 3, 7, 31, 32, 33, 63, 64, 65, 95, 96, 97, 128, 160)]
    out += [prompt(n, "chunked") for n in (255, 256, 257, 300, 511, 512, 513, 700, 1024, 1500)]
    shared = prompt(320, "shared")
    out += [shared[:n] + prompt(m, i) for i, (n, m) in enumerate(
        ((32, 40), (33, 70), (64, 64), (64, 100), (100, 33), (128, 1), (160, 160), (256, 8)))]
    out += [prompt(n, "plain") for n in (50, 80, 110, 140, 170, 200, 230, 400)]
    assert len(out) == 40
    return out
