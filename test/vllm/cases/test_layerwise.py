"""Both requests at the same time: D waits for its layers while P computes them, chunk by chunk."""

import base64
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.fleet import BRIEF
from harness.handover import ASK, decode, equal, handover, prompt, tokens

pytestmark = pytest.mark.core

LENGTHS = (33, 64, 100, 256, 300, 700, 1024)


@pytest.fixture(scope="module")
def pair(fleet):
    settings = {"layerwise": True}
    p, d = (fleet.start(f"{role}-layerwise", node, settings) for role, node in (("prefill", "node-a"), ("decode", "node-b")))
    yield p.ready(), d.ready()
    fleet.settled()
    fleet.end(p.name)
    fleet.end(d.name)


def together(p, d, ids, node="node-a"):
    """What a proxy sends to both at once: a name for the transfer, a token, and the node that the KV comes from."""
    token = base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
    shared = {"transfer_id": secrets.token_hex(8), "kvpipe": {"v": 1, "node": node, "token": token}}
    with ThreadPoolExecutor(1) as pool:
        prefilled = pool.submit(p.completion, ids, max_tokens=1, kv_transfer_params={**ASK, **shared})
        answer = decode(d, ids, {"do_remote_prefill": True, "do_remote_decode": False, **shared})
        prefilled.result()
    return answer


def test_every_token_is_right(pair, reference):
    p, d = pair
    for n in LENGTHS:
        ids = prompt(n, "layerwise")
        answer = together(p, d, ids)
        equal(tokens(answer), tokens(reference.completion(ids)), f"{n} tokens")
        assert d.computed(answer["id"])[0] == 1, f"{n} tokens: computed by D"


def test_many_at_the_same_time(pair, reference):
    p, d = pair
    prompts = [prompt(n, "layerwise, many") for n in LENGTHS]
    with ThreadPoolExecutor(2 * len(prompts)) as pool:
        answers = list(pool.map(lambda ids: together(p, d, ids), prompts))
    equal([tokens(a) for a in answers], [tokens(reference.completion(ids)) for ids in prompts])


def test_one_after_the_other_still_works(pair, reference):
    p, d = pair
    ids = prompt(300, "layerwise, in turn")
    answer = handover(p, d, ids)
    equal(tokens(answer), tokens(reference.completion(ids)))
    assert d.computed(answer["id"])[0] == 1


def test_a_prefill_that_never_comes(fleet, reference):
    """Nobody computes it: D gives the layers up, and computes the prompt."""
    d = fleet.start("decode-layerwise-brief", "node-b", {"layerwise": True, **BRIEF}).ready()
    ids = prompt(120, "layerwise, alone")
    token = base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
    answer = decode(d, ids, {"do_remote_prefill": True, "do_remote_decode": False, "transfer_id": secrets.token_hex(8),
                             "kvpipe": {"v": 1, "node": "node-a", "token": token}})
    equal(tokens(answer), tokens(reference.completion(ids)))
