"""Engines that cannot use kvpipe are told why, in one line, at their start."""

import os
import threading
import time
import types
from unittest import mock

import pytest
from engines import LATE
from fakes import cache as cache_of
from fakes import chunks, full, window

from kvpipe import Unavailable
from kvpipe.vllm import compat
from kvpipe.vllm.connector import KVPipeConnector
from kvpipe.vllm.params import Settings
from kvpipe.vllm.session import open_session
from kvpipe.vllm.unsuited import unsuited


def engine(device="cpu", dcp=1, pcp=1, **model):
    return types.SimpleNamespace(
        model_config=types.SimpleNamespace(**model), device_config=types.SimpleNamespace(device_type=device),
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=dcp, prefill_context_parallel_size=pcp))


def cache(**spec):
    group = types.SimpleNamespace(layer_names=["l"], kv_cache_spec=types.SimpleNamespace(**spec))
    return types.SimpleNamespace(kv_cache_groups=[group])


@pytest.mark.parametrize("config, spec, why", [
    (engine(is_encoder_decoder=True), {}, "encoder-decoder"),
    (engine(dcp=2), {}, "--decode-context-parallel-size"),
    (engine(pcp=2), {}, "--prefill-context-parallel-size"),
    (engine("cuda"), {}, "KV on cuda"),
    (engine(), {"shapes": ()}, "only attention with paged KV"),
    (engine(), {"shapes": (), "head_size": 64}, "only attention with paged KV"),
    (engine(), {"rows": 3}, "only attention with paged KV"),
    (engine(), {"head_size": 64, "tokens_per_state": 2}, "one state for each token"),
])
def test_why(config, spec, why):
    told = compat.refusal(config, cache(**spec))
    assert why in told and "\n" not in told


def test_others_are_not():
    known = cache(head_size=64)
    assert compat.refusal(engine(), known) is compat.refusal(engine(), None) is None
    config = engine()
    config.model_config = None
    assert compat.refusal(config, known) is None
    known.kv_cache_groups[0].host_resident = True
    assert "one state for each token" in compat.refusal(engine(), known)


def test_an_engine_that_does_not_say_which_runner_it_has_may_not_take_steps_back():
    assert [compat.takes_back(types.SimpleNamespace(**more)) for more in ({}, {"use_v2_model_runner": False})] == [False, True]


def with_settings(role="kv_both", asynchronous=False, pp=1, v2=False):
    return types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(kv_role=role),
                                 parallel_config=types.SimpleNamespace(pipeline_parallel_size=pp),
                                 scheduler_config=types.SimpleNamespace(async_scheduling=asynchronous), use_v2_model_runner=v2)


ALL = [full()]


@pytest.mark.parametrize("settings, config, specs, why", [
    ({"layerwise": True}, with_settings(), [full(), full()], "several KV cache groups"),
    ({"layerwise": True}, with_settings(), [window(64)], "a window of tokens"),
    ({"layerwise": True}, with_settings(), [chunks(64)], "a window of tokens"),
    ({"layerwise": True}, with_settings(), [full(sliding_window=64)], None),
    ({"layerwise": True}, with_settings(asynchronous=True), ALL, "--no-async-scheduling"),
    ({"layerwise": True}, with_settings("kv_producer", True), ALL, None),
    ({"layerwise": True}, with_settings("kv_producer", pp=2), ALL, "--pipeline-parallel-size"),
    ({"layerwise": True}, with_settings(v2=True), ALL, "VLLM_USE_V2_MODEL_RUNNER=0"),
    ({"layerwise": True}, with_settings("kv_producer", v2=True), ALL, None),
    ({}, with_settings(v2=True), ALL, None),
    ({}, with_settings(pp=2), ALL, None),
    ({}, with_settings(asynchronous=True), [full(), window(64)], None),
    ({"decode_offer": 9.0}, with_settings("kv_producer"), ALL, "decode_offer is for decode engines"),
])
def test_settings_that_cannot_work(settings, config, specs, why):
    told = unsuited(Settings.parse(settings), config, cache_of(*specs))
    assert told is None if why is None else why in told and "\n" not in told


@pytest.mark.parametrize("agent, layerwise, role, refused", [
    ("itself", True, "kv_both", False),
    ("MultiConnector", False, "kv_both", False),
    ("MultiConnector", True, "kv_producer", False),
    ("MultiConnector", True, "kv_both", True),
])
def test_no_step_waits_for_layers_beside_another_connector(monkeypatch, agent, layerwise, role, refused):
    one = KVPipeConnector.__new__(KVPipeConnector)
    one._worker, one._layerwise, one._vllm_config = mock.Mock(), layerwise, with_settings(role)
    monkeypatch.setattr("vllm.distributed.kv_transfer.kv_transfer_state._KV_CONNECTOR_AGENT", one if agent == "itself" else object())
    if refused:
        with pytest.raises(ValueError, match="^kvpipe: layerwise is not supported in MultiConnector"):
            one.register_kv_caches({})
    else:
        one.register_kv_caches({})
        assert one.get_handshake_metadata().alone == (agent == "itself")


def test_sleep_goes_with_a_vllm_that_tells_of_it(monkeypatch):
    config = engine(enable_sleep_mode=True)
    assert KVPipeConnector.supports_sleep_mode(None) == compat.TELLS_OF_SLEEP == hasattr(compat.Base, "restore_kv_caches")
    for tells in (False, True):
        monkeypatch.setattr(compat, "TELLS_OF_SLEEP", tells)
        assert (compat.refusal(config, cache(head_size=64)) is None) == tells


def test_a_library_that_is_not_there_is_not_waited_for(monkeypatch):
    def library():
        raise Unavailable("libkvpipe cannot be loaded: no such file")

    monkeypatch.setattr("kvpipe.vllm.session.library", library)
    with pytest.raises(RuntimeError, match="^kvpipe: libkvpipe cannot be loaded"):
        open_session(Settings(), "engine", None)


def test_a_daemon_that_does_not_come_is_waited_for_so_long(tmp_path):
    began, settings = time.monotonic(), Settings(socket=str(tmp_path / "kvpiped.sock"), connect_timeout=0.6)
    with pytest.raises(RuntimeError, match="^kvpipe: no daemon at .*: mount that directory into the pod or start .*kvpipectl doctor\"$"):
        open_session(settings, "engine", None)
    assert 0.6 <= time.monotonic() - began < 0.6 + LATE


def test_one_that_comes_meanwhile_is_found(near, tmp_path):
    settings = Settings(socket=str(tmp_path / "kvpiped.sock"), connect_timeout=60)
    starts = threading.Timer(0.4, os.symlink, (near.socket, settings.socket))
    starts.start()
    with open_session(settings, "engine", None) as node:
        assert node.name == near.node
    starts.join()


def test_one_that_no_setting_names_is_that_of_the_environment(near, monkeypatch):
    monkeypatch.setenv("KVPIPE_SOCKET", near.socket)
    with open_session(Settings(), "engine", None) as node:
        assert node.name == near.node


def test_settings_are_not_held_against_a_cache_that_is_not_known():
    assert unsuited(Settings(layerwise=True), with_settings(), None) is None
