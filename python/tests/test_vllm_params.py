"""What users write for the vLLM connector, and what clients send it."""

import base64

import pytest

from kvpipe.vllm.params import Settings, Source, decode_token, incoming, keep, outgoing

TOKEN = bytes(range(16))
SOURCE = Source("prefill-0", "engine:1:request", TOKEN, "0af7651916cd43dd8448eb211c80319c", 96)


def answer(**changes):
    source = SOURCE._replace(**changes)
    return outgoing(blocks=[[4, 7, 9]], engine="e", request="r", address="10.0.0.1:7650", tp=2, source=source)


def ours(**changes):
    params = answer()
    params["kvpipe"].update(changes)
    return params


def test_what_goes_out_comes_in():
    assert incoming(answer()) == SOURCE


def test_the_parameters_are_those_of_nixl_and_one_dict():
    params = answer()
    assert {k: v for k, v in params.items() if k != "kvpipe"} == {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": ([4, 7, 9],), "remote_engine_id": "e",
        "remote_request_id": "r", "remote_host": "10.0.0.1", "remote_port": 7650, "tp_size": 2,
    }
    assert set(params["kvpipe"]) == {"v", "node", "key", "token", "trace", "tokens"}


def test_a_node_that_says_no_address_is_its_own_host():
    params = outgoing(blocks=[], engine="e", request="r", address="", tp=1, source=SOURCE)
    assert (params["remote_host"], params["remote_port"]) == ("prefill-0", 0)


def test_an_address_of_ipv6_loses_its_brackets():
    params = outgoing(blocks=[], engine="e", request="r", address="[fe80::1]:7650", tp=1, source=SOURCE)
    assert (params["remote_host"], params["remote_port"]) == ("fe80::1", 7650)


@pytest.mark.parametrize("changes, word", [
    ({"v": 2}, "understands 1"),
    ({"v": None}, "understands 1"),
    ({"node": ""}, "node"),
    ({"node": "n" * 256}, "node"),
    ({"node": 7}, "node"),
    ({"node": "a\0b"}, "node"),
    ({"key": "k" * 257}, "key"),
    ({"key": None}, "key"),
    ({"token": "short"}, "token"),
    ({"token": None}, "token"),
    ({"tokens": -1}, "tokens"),
    ({"tokens": "many"}, "tokens"),
    ({"tokens": True}, "tokens"),
])
def test_what_a_client_makes_up_is_told_apart(changes, word):
    reason = incoming(ours(**changes))
    assert isinstance(reason, str) and word in reason


@pytest.mark.parametrize("value", ["text", 3, ["list"]])
def test_the_dict_must_be_one(value):
    assert "must be a dict" in incoming({"kvpipe": value})


def test_parameters_of_another_connector_are_named():
    params = answer()
    del params["kvpipe"]
    assert "does not use KVPipeConnector" in incoming(params)


@pytest.mark.parametrize("tokens", [0, None])
def test_tokens_that_are_not_said_are_the_prompts(tokens):
    assert incoming(ours(tokens=tokens)) == SOURCE._replace(tokens=0)


def test_a_trace_that_is_none_is_left_out():
    assert incoming(ours(trace="t" * 65)).trace is None
    assert incoming(ours(trace=5)).trace is None


def test_a_transfer_id_names_the_key_where_nobody_else_does():
    params = ours()
    del params["kvpipe"]["key"]
    early = incoming(dict(params, transfer_id="42"))
    assert (early.key, early.early) == ("transfer:42", True)
    assert incoming(dict(ours(), transfer_id="42")) == SOURCE
    assert "key" in incoming(params)


@pytest.mark.parametrize("text, token", [
    (base64.urlsafe_b64encode(TOKEN).decode(), TOKEN),
    (base64.urlsafe_b64encode(TOKEN).decode().rstrip("="), TOKEN),
    (base64.urlsafe_b64encode(TOKEN * 2).decode(), TOKEN * 2),
    (base64.urlsafe_b64encode(TOKEN[:15]).decode(), None),
    (base64.urlsafe_b64encode(TOKEN * 2 + b"x").decode(), None),
    ("A" * 21, None),
    ("*" * 22, None),
    ("\u00e9" * 22, None),
    (TOKEN, None),
])
def test_tokens_are_16_to_32_bytes(text, token):
    assert decode_token(text) == token


def test_settings_have_defaults():
    assert Settings.parse({}) == Settings()
    assert Settings.parse({"lease": 10, "layerwise": True}) == Settings(lease=10.0, layerwise=True)


@pytest.mark.parametrize("extra, word", [
    ({"leese": 3}, "did you mean 'lease'"),
    ({"wholly_else": 3}, "known are socket"),
    ({"lease": "30"}, "float"),
    ({"lease": True}, "float"),
    ({"lease": 0}, "lease is 0.0: give 0.001 to 2592000 seconds (30 days)"),
    ({"lease": float("nan")}, "lease is nan: give 0.001 to"),
    ({"timeout": float("inf")}, "timeout is inf: give 0.001 to"),
    ({"timeout": 10 ** 400}, "timeout is inf: give 0.001 to"),
    ({"timeout": 1e-10}, "timeout is 1e-10: give 0.001 to"),
    ({"connect_timeout": 30 * 86_400 + 1}, "connect_timeout is 2592001.0: give 0.001 to"),
    ({"layerwise": 1}, "bool"),
    ({"kv_recompute_threshold": 1.5}, "int"),
    ({"kv_recompute_threshold": -1}, "negative"),
    ({"decode_offer": 7200}, "0, or 0.001 to 3600 seconds"),
    ({"decode_offer_share": 20}, "0 to 1"),
    ({"advertise": "host"}, "host:port"),
    ({"advertise": "host:65536"}, "host:port"),
    ({"advertise": "host:0"}, "host:port"),
    ({"advertise": "host:http"}, "host:port"),
    ({"advertise": ":7650"}, "host:port"),
])
def test_settings_are_strict(extra, word):
    with pytest.raises(ValueError, match="^kvpipe: ") as error:
        Settings.parse(extra)
    assert word in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("extra", [
    {"decode_offer_share": 0.0}, {"decode_offer_share": 1.0}, {"kv_recompute_threshold": 0}, {"decode_offer": 0.001},
    {"decode_offer": 3600.0}, {"lease": 0.001}, {"timeout": 30.0 * 86_400}, {"advertise": "host:1"}, {"advertise": "[::1]:65535"},
])
def test_limits_themselves_are_within(extra):
    assert Settings.parse(extra) == Settings(**extra)


@pytest.mark.parametrize("node", ["10.0.0.9:7650", "[::1]:1", "half \ud800", "", "n" * 256, "a\0b", None])
def test_a_node_is_named_not_addressed(node):
    assert "kvpipe.node is" in incoming(ours(node=node))


@pytest.mark.parametrize("asked, seconds", [(60, 60), (0.5, 0.5), (3600, 3600), (3601, 0), (0, 0), (-1, 0), (True, 0), ("60", 0), (float("nan"), 0)])
def test_a_request_may_ask_that_its_kv_be_kept(asked, seconds):
    assert keep({"kvpipe": {"v": 1, "keep": asked}}, 30) == seconds
    assert keep({"kvpipe": {"v": 1}}, 30) == keep({}, 30) == keep(None, 30) == keep({"kvpipe": "x"}, 30) == 30


def test_what_a_client_asks_of_decode_goes_through_prefill():
    """A proxy passes on prefill's answer, and no more."""
    source = Source("n", "k", TOKEN, None, 8)
    answer = dict(blocks=[[1]], engine="e", request="r", address="", tp=1, source=source)
    assert keep(outgoing(**answer, keep=60.0)) == 60
    assert "keep" not in outgoing(**answer)["kvpipe"]
