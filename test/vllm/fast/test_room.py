"""What is kept for a next turn makes room for requests that wait."""

import contextlib
import types

import models
import places
import pytest
from engine import SLOTS, Engine, wait
from vllm.v1.core.sched.interface import PauseState

from kvpipe.vllm import compat

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


def test_so_does_a_request_that_lacks_a_block_when_it_has_loaded(near):
    """vLLM asks about it no more, and serves nobody before it who would have room made."""
    model = models.opt(places.MADE / "facebook/opt-125m")
    pair = {"transfer_id": "t", "kvpipe": {"v": 1, "node": near.node, "token": "A" * 22}}
    turn, most = list(range(2, 2 * SLOTS)), 5
    with contextlib.ExitStack() as stack:
        p = Engine(model, near.socket, "p loaded", budget=256)
        stack.callback(p.close)
        d = Engine(model, near.socket, "d loaded", budget=256, drafts=3, blocks=1 + 3 + len(WAITS) // SLOTS,
                   decode_offer=3000.0, decode_offer_share=1.0)
        stack.callback(d.close)
        d.add("turn", turn, most)
        assert d.step(), "it has two blocks, and will have the one that the drafts of the other are admitted with"
        d.add("r", WAITS, 1, {"do_remote_prefill": True, **pair})
        assert steps(d, lambda: "turn" in d.ends) and d.params["turn"], "it is kept"
        p.add("r", WAITS, 1, {"do_remote_decode": True, **pair})
        assert steps(p, lambda: "r" in p.ends) and steps(d, lambda: "r" in d.received)
        assert steps(d, lambda: "r" in d.ends) and "turn" in d.sent and not d.failed


def test_a_pause_waits_for_what_is_kept_until_the_connectors_cache_is_reset(near):
    """As docs/vllm.md says: vLLM resets it itself only after the pause."""
    with contextlib.ExitStack() as stack:
        d = Engine(models.opt(places.MADE / "facebook/opt-125m"), near.socket, "d paused", budget=256, decode_offer=3000.0,
                   decode_offer_share=1.0)
        stack.callback(d.close)
        d.add("turn", KEPT, 3)
        assert steps(d, lambda: "turn" in d.ends) and d.params["turn"], "it is kept"
        d.scheduler.set_pause_state(PauseState.PAUSED_NEW)
        d.step()
        assert d.scheduler.has_requests() and not d.sent
        d.scheduler.reset_prefix_cache(reset_connector=True)
        assert steps(d, lambda: not d.scheduler.has_requests()) and d.sent == {"turn"}


@pytest.mark.parametrize("more, room", [({}, 9), ({"watermark_blocks": 2}, 7)])
def test_vllm_keeps_some_free(more, room):
    pool = types.SimpleNamespace(get_num_free_blocks=lambda: 9)
    assert compat.room(types.SimpleNamespace(block_pool=pool, **more))() == room
