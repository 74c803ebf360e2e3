"""The structs and numbers of the package are those of kvpipe.h: the golden file that C and Go are checked against."""

import ctypes
import re

import pytest
from daemons import ROOT
from kvpipe import Reason, Status, _abi, _library, errors

HEADER = (ROOT / "include/kvpipe.h").read_text()
GOLDEN = (ROOT / "capi/internal/abicheck/testdata/abi.golden").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)


@pytest.mark.parametrize("name", sorted(_abi.STRUCTS))
def test_struct(name):
    kind = _abi.STRUCTS[name]
    size = re.search(r"SIZE\(%s, (\d+)\)" % name, GOLDEN)
    fields = re.findall(r"FIELD\(%s, (\w+), (\d+), (\d+)\)" % name, GOLDEN)
    assert size and ctypes.sizeof(kind) == int(size.group(1))
    ours = [(f, str(getattr(kind, f).offset), str(getattr(kind, f).size)) for f, *_ in kind._fields_]
    assert ours == fields


def test_constants():
    golden = {name: int(value) for name, value in re.findall(r"VALUE\((\w+), (-?\d+)\)", GOLDEN)}
    ours = {
        "KVPIPE_FOREVER": _abi.FOREVER,
        "KVPIPE_NO_BLOCK": _abi.NO_BLOCK,
        "KVPIPE_MAX_TOKEN": _abi.MAX_TOKEN,
        "KVPIPE_OP_SEALED": _abi.OP_SEALED,
        "KVPIPE_OP_LAYERED": _abi.OP_LAYERED,
        "KVPIPE_ADOPT_QUIESCED": _abi.ADOPT_QUIESCED,
        "KVPIPE_C_MORE": _abi.C_MORE,
        "KVPIPE_ROLE_WORKER": _abi.ROLES["worker"],
        "KVPIPE_ROLE_SCHEDULER": _abi.ROLES["scheduler"],
        "KVPIPE_VIEW_PAGED": _abi.VIEW_KINDS["paged"],
        "KVPIPE_VIEW_OPAQUE": _abi.VIEW_KINDS["opaque"],
    }
    ours.update({f"KVPIPE_{s.name}": s.value for s in Status})
    ours.update({"KVPIPE_OK" if r == 0 else f"KVPIPE_E_{r.name}": r.value for r in Reason})
    assert ours == {name: golden[name] for name in ours}
    in_header = re.findall(r"KVPIPE_E_(\w+) =", CODE)
    assert [r.name for r in Reason if r] == in_header


def test_every_reason_has_its_error():
    for reason in Reason:
        if reason:
            kind = type(errors.make(reason, "text"))
            assert kind is not errors.Error and kind.reason == reason
            assert kind.__name__.upper() == reason.name.replace("_", "")
    unknown = errors.make(99, "from a newer library")
    assert type(unknown) is errors.Error and unknown.reason == 99


def test_every_function_is_declared_as_in_the_header():
    for name, (_, arguments) in _library._FUNCTIONS.items():
        declared = re.search(r"\b%s\(([^)]*)\)" % name, CODE)
        assert declared, name
        parameters = [p for p in declared.group(1).split(",") if p.strip() != "void"]
        assert len(parameters) == len(arguments), name
