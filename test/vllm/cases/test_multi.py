"""Beside another connector, in MultiConnector: what one does not have the other is asked for, and nothing is freed twice."""

import pytest

from harness.handover import equal, handover, prompt, tokens


def beside(folder, first):
    """kvpipe and vLLM's connector to a folder, in either order."""
    def wrap(kv):
        ours = {key: kv[key] for key in ("kv_connector", "kv_role", "kv_load_failure_policy", "kv_connector_extra_config")}
        other = {"kv_connector": "ExampleConnector", "kv_role": "kv_both",
                 "kv_connector_extra_config": {"shared_storage_path": str(folder)}}
        return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {"connectors": [ours, other] if first else [other, ours]}}
    return wrap


@pytest.mark.parametrize("first", [True, False], ids=["kvpipe first", "kvpipe second"])
def test_hand_over_and_store(fleet, reference, tmp_path, first):
    p, d = (fleet.start(f"{role}-multi", node, wrap=beside(tmp_path / node, first))
            for role, node in (("prefill", "node-a"), ("decode", "node-b")))
    try:
        p.ready(), d.ready()
        for n in (40, 100, 200):
            ids = prompt(n, f"multi {first}")
            answer = handover(p, d, ids)
            equal(tokens(answer), tokens(reference.completion(ids)), f"{n} tokens")
            assert d.computed(answer["id"])[0] == 1, f"{n} tokens: computed by D"
        assert list((tmp_path / "node-a").iterdir()), "P stored nothing in its folder"
        fleet.settled()
    finally:
        fleet.end(p.name)
        fleet.end(d.name)
