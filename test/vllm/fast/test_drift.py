"""The connector against the interfaces of three minor versions of vLLM: facts/ has what each asks for."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import pathlib
import sys
import types

import facts
import pytest

import kvpipe.vllm
from kvpipe.vllm import compat
from kvpipe.vllm.connector import KVPipeConnector

KNOWN = facts.known()
CLASSES = {"KVConnectorBase_V1": KVPipeConnector, "SupportsHMA": KVPipeConnector}
INSTALLED = tuple(map(int, importlib.metadata.version("vllm").split(".")[:2]))

# Symbols that compat.py does without where they are not there.
OPTIONAL = {"vllm.v1.metrics.cache_hit_source.CacheHitSource"}

each = pytest.mark.parametrize("minor", KNOWN, ids=lambda m: "%d.%d" % m)


def ours(cls):
    """What our class says itself, beyond vLLM's."""
    out = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("kvpipe."):
            out.update(vars(base))
    return out


def asked(minor):
    """(class of ours, hook, what that version says of it)."""
    for name, cls in CLASSES.items():
        for hook, said in KNOWN[minor]["hooks"][name].items():
            yield cls, hook, said


def test_the_versions_are_the_newest_that_are_promised():
    assert (compat.OLDEST, compat.NEWEST) == (min(KNOWN), max(KNOWN)) and len(KNOWN) == 3
    assert INSTALLED in KNOWN, f"vLLM {INSTALLED} is installed: fetch its source (sources.py) and write its facts (facts.py)"


def test_the_facts_are_those_of_the_installed_version():
    root = pathlib.Path(importlib.util.find_spec("vllm").origin).parents[1]
    read = {}
    for path, classes in facts.CLASSES.items():
        read.update(facts.hooks((root / path).read_text(), classes))
    assert read == KNOWN[INSTALLED]["hooks"]


@each
def test_every_hook_takes_what_vllm_gives(minor):
    """By position, and by name."""
    wrong = []
    for cls, hook, said in asked(minor):
        if hook not in ours(cls):
            continue
        function = ours(cls)[hook]
        kind = {classmethod: "classmethod", staticmethod: "staticmethod", property: "property"}.get(type(function), "method")
        if kind != said["kind"] and not (kind == "method" and said["kind"] == "property"):
            wrong.append(f"{hook} is a {kind}, vLLM's a {said['kind']}")
            continue
        if kind == "property":
            continue
        signature = inspect.signature(getattr(cls, hook) if kind != "method" else function.__get__(object()))
        required = [name for name, how, default in said["parameters"] if how == "positional" and not default]
        every = [name for name, how, _ in said["parameters"] if how in ("positional", "keyword")]
        for args, kw in ((required, {}), ([], dict.fromkeys(every)), (required, dict.fromkeys(set(every) - set(required)))):
            try:
                signature.bind(*args, **kw)
            except TypeError as error:
                wrong.append(f"{hook}{signature} called with {args} {sorted(kw)}: {error}")
        if any(how == "**" for _, how, _ in said["parameters"]) and not any(
                p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            wrong.append(f"{hook} takes no other keywords")
    assert not wrong, "\n".join(wrong)


@each
def test_what_has_to_be_there_is(minor):
    assert not [hook for cls, hook, said in asked(minor) if said["abstract"] and hook not in ours(cls)]


def test_what_looks_like_a_hook_is_one():
    """A name that no version knows would never be called."""
    hooks = {hook for minor in KNOWN for _, hook, _ in asked(minor)}
    public = {name for name, value in ours(KVPipeConnector).items() if not name.startswith("_") and callable(value)}
    assert public and not public - hooks


def test_every_hook_that_we_leave_alone_is_left_on_purpose():
    """A new one has to be thought about once."""
    hooks = {hook for minor in KNOWN for cls, hook, _ in asked(minor) if hook not in ours(cls)}
    lines = (facts.FOLDER / "inherited.txt").read_text().splitlines()
    reasons = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))
    assert set(reasons) == hooks


@each
def test_the_symbols_that_we_use_are_there(minor):
    symbols = KNOWN[minor]["symbols"]
    assert set(symbols) == {f"{module}.{name}" for module, name in facts.uses()}, "write the facts anew (facts.py)"
    assert not {symbol for symbol, there in symbols.items() if not there} - OPTIONAL


def test_what_an_older_version_lacks_is_done_without(monkeypatch):
    for symbol in OPTIONAL:
        monkeypatch.setitem(sys.modules, symbol.rpartition(".")[0], None)
    assert compat.cache_hit_source() is None
    monkeypatch.setitem(sys.modules, "vllm.v1.request", None)
    with pytest.raises(ImportError, match=r"kvpipe: vLLM .* has no vllm\.v1\.request\.RequestStatus .*install a pair that fits"):
        compat._get("vllm.v1.request", "RequestStatus")


def test_who_does_not_use_kvpipe_goes_on_with_a_vllm_that_does_not_fit(monkeypatch, caplog):
    """vLLM calls this in all its processes, and lets nothing be raised. Who uses kvpipe reads why its name is not known."""
    monkeypatch.setitem(sys.modules, "vllm.distributed.kv_transfer.kv_connector.factory", None)
    kvpipe.vllm.register()
    record, = caplog.records
    assert record.name == "vllm.kvpipe" and "has no vllm.distributed" in record.getMessage() and "\n" not in record.getMessage()


@pytest.mark.parametrize("version, works", [((0, 29), False), ((0, 30), False), ((0, 31), True), ((0, 33), True), ((0, 40), True),
                                            (("dev", 1), True)])
def test_versions_outside_are_told_at_once(monkeypatch, version, works):
    monkeypatch.setattr(importlib.import_module("vllm"), "__version_tuple__", version)
    if works:
        compat.check_version()
    else:
        with pytest.raises(ImportError, match="kvpipe: vLLM .* is not supported: use 0.31 to 0.33"):
            compat.check_version()


def test_layers_of_a_draft_model_are_known_by_their_names(monkeypatch):
    draft_model = importlib.import_module("vllm.v1.spec_decode.draft_model")
    monkeypatch.setattr(draft_model, "get_model", lambda *, prefix, **_: prefix)
    prefix = draft_model.DraftModelProposer._get_model(types.SimpleNamespace(_create_draft_vllm_config=lambda: None))
    assert compat.of_draft_model(f"{prefix}.model.layers.0.self_attn.attn", 4) and not compat.of_draft_model("model.layers.0.self_attn.attn", 4)
    for name in "model.mtp.layers.0.self_attn.attn", "mtp.layers.0.self_attn.attn":
        assert compat.of_draft_model(name, 4)
    assert not compat.of_draft_model("model.mtp.layers.4.self_attn.attn", 4), "behind the model's already"


def test_model_runner_v2_is_known_and_says_when_it_computes():
    """By these a step knows whether it may wait, and a load whether a step may wait for it."""
    assert hasattr(importlib.import_module("vllm.config").VllmConfig, "use_v2_model_runner")
    loads = importlib.import_module("vllm.v1.worker.gpu.kv_connector").ActiveKVConnector._build_load_kwargs
    batch = types.SimpleNamespace(idx_mapping=None, req_ids=["r"], num_tokens=4)
    assert loads(None, batch, None)["num_tokens"] == 4 and "num_tokens" not in loads(None, None, None)


def test_the_model_that_drafts_has_a_config():
    assert "draft_model_config" in importlib.import_module("vllm.config").SpeculativeConfig.__dataclass_fields__
    assert compat.draft_config(types.SimpleNamespace(speculative_config=types.SimpleNamespace(draft_model_config="its"))) == "its"
    assert compat.draft_config(types.SimpleNamespace(speculative_config=None)) is None
