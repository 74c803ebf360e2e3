"""What is kept for a next turn makes room for requests that wait."""

import contextlib

import models
import places
import pytest
from engine import SLOTS, Engine, wait

KEPT, WAITS = list(range(2, 72)), list(range(100, 100 + 6 * SLOTS))


def steps(engine, until):
    """Its step goes on, until what is true, for a hundred times at most."""
    for _ in range(100):
        if until():
            return True
        if not engine.step():
            wait(engine.filenos())
    return False


@pytest.mark.parametrize("drafts, spare", [(0, -1), (3, -1), (3, 0)])
def test_a_load_that_finds_no_room_gets_that_of_what_is_kept(near, drafts, spare):
    """With speculative decoding vLLM has a load begin only where more is free than it needs."""
    model = models.opt(places.MADE / "facebook/opt-125m")
    kept, needed = -(-len(KEPT) // SLOTS), len(WAITS) // SLOTS
    with contextlib.ExitStack() as stack:
        p = Engine(model, near.socket, f"p room {drafts} {spare}", budget=256)
        stack.callback(p.close)
        d = Engine(model, near.socket, f"d room {drafts} {spare}", budget=256, drafts=drafts, blocks=1 + kept + needed + spare,
                   decode_offer=3000.0, decode_offer_share=1.0)
        stack.callback(d.close)
        p.add("r", WAITS, 1, {"do_remote_decode": True, "do_remote_prefill": False})
        assert steps(p, lambda: "r" in p.ends)
        d.add("turn", KEPT, 3)
        assert steps(d, lambda: "turn" in d.ends) and d.params["turn"], "it is kept"
        d.add("r", WAITS, 1, p.params["r"])
        assert steps(d, lambda: "r" in d.received)
        assert "turn" in d.sent
