"""The name of an engine's start, which all of its sessions must have in common: what ranks on several nodes take of an offer is one
take's parts only then."""

import pickle
import types

import pytest
from fakes import cache
from vllm.config import VllmConfig

from kvpipe.vllm import compat, connector, session
from kvpipe.vllm.compat import Role


class Group:
    """vLLM's, of ranks that are asked one after the other. ``last``: what its first one has sent."""

    def __init__(self):
        self.last = None

    def seen_by(self, rank):
        def broadcast(name, src):
            assert src == 0
            self.last = name if rank == src else self.last
            return self.last
        return types.SimpleNamespace(broadcast_object=broadcast, rank_in_group=rank)


def engine(instance, nodes=2, tp=1, pp=1):
    """What vLLM has made of the command line on one of an engine's nodes."""
    space = types.SimpleNamespace
    return space(
        instance_id=instance, model_config=None, device_config=space(device_type="cpu"),
        cache_config=space(enable_prefix_caching=True), scheduler_config=space(async_scheduling=False),
        parallel_config=space(tensor_parallel_size=tp, pipeline_parallel_size=pp, nnodes_within_dp=nodes),
        kv_transfer_config=space(engine_id="e", kv_role="kv_both", kv_load_failure_policy="recompute", kv_connector_extra_config={}))


@pytest.fixture
def opened(node, monkeypatch):
    """The instances of the sessions that were opened."""
    found = []

    def opens(settings, engine, instance, **_):
        found.append(instance)
        return node

    monkeypatch.setattr(connector, "open_session", opens)
    return found


@pytest.mark.parametrize("tp, pp", [(2, 1), (1, 2), (2, 2)])
def test_ranks_on_several_nodes_are_one_instance_with_their_scheduler(opened, monkeypatch, tp, pp):
    stages, columns = [Group() for _ in range(pp)], [Group() for _ in range(tp)]
    for rank in range(tp * pp):
        i, j = rank % tp, rank // tp
        monkeypatch.setattr(compat, "groups", lambda: (stages[j].seen_by(i), columns[i].seen_by(j)))
        monkeypatch.setattr(session, "groups", compat.groups)
        connector.KVPipeConnector(engine(f"of node {rank * 2 // (tp * pp)}", tp=tp, pp=pp), Role.WORKER, cache())
    connector.KVPipeConnector(engine("of node 0", tp=tp, pp=pp), Role.SCHEDULER, cache())
    assert opened == ["of node 0"] * (tp * pp + 1)


@pytest.mark.parametrize("config, name", [(engine("i", nodes=1), "i"), (engine("", nodes=1), None)])
def test_on_one_node_nobody_is_asked(opened, monkeypatch, config, name):
    monkeypatch.setattr(compat, "rank", lambda: (0, 0))  # there are no groups
    connector.KVPipeConnector(config, Role.WORKER, cache())
    assert opened == [name]


def test_a_scheduler_asks_no_worker(opened):
    connector.KVPipeConnector(engine("i"), Role.SCHEDULER, cache())
    assert opened == ["i"]


def test_vllm_names_each_start_once():
    """Its scheduler and the workers on that node have one configuration, which comes to them pickled."""
    config = VllmConfig()
    assert pickle.loads(pickle.dumps(config)).instance_id == config.instance_id != VllmConfig().instance_id
