"""Several answers to one prompt (n above 1): their requests name the same KV, which its producer gives once."""

import contextlib

import models
import places
import pytest
from engine import Engine, wait
from text import Text

ASK = {"do_remote_decode": True, "do_remote_prefill": False}
PROMPT = list(range(2, 72))


def to_the_end(engine):
    while engine.busy:
        if not engine.step():
            wait(engine.filenos())


@pytest.mark.parametrize("threshold", [1, 64])
@pytest.mark.parametrize("nodes", ["one node", "two nodes"])
def test_all_are_answered_and_one_has_loaded(near, far, nodes, threshold):
    """Also where a load that fails is an error."""
    model = models.opt(places.MADE / "facebook/opt-125m")
    with contextlib.ExitStack() as stack:
        p, d = (Engine(model, daemon.socket, f"{name} {nodes} {threshold}", budget=256, policy="fail", kv_recompute_threshold=threshold)
                for name, daemon in (("p", near), ("d", near if nodes == "one node" else far)))
        stack.callback(p.close)
        stack.callback(d.close)
        p.add("r", PROMPT, 1, dict(ASK))
        while "r" not in p.ends:
            p.step()
        children = [f"{i}_r" for i in range(3)]
        for child in children:
            d.add(child, PROMPT, 3, p.params["r"])
        to_the_end(d)
        assert {child: (d.ends[child], d.answers[child]) for child in children} == dict.fromkeys(children, ("length", Text(PROMPT).answer(3)))
        assert d.received == {"0_r"} and not d.failed
        d.settle()
        d.assert_empty()
