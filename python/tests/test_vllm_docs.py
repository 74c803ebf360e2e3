"""docs/vllm.md has the connector's settings as they are. UPDATE=1 writes them."""

import dataclasses
import os
import re

from daemons import ROOT

from kvpipe.vllm.params import Settings

GUIDE = ROOT / "docs/vllm.md"
BLOCK = re.compile(r"(<!-- settings: [^\n]* -->\n).*(<!-- end of settings -->)", re.S)


def table():
    """From the fields and the comments before them."""
    source = (ROOT / "python/kvpipe/vllm/params.py").read_text()
    rows = ["| key | default | |", "|---|---|---|"]
    for field in dataclasses.fields(Settings):
        said = re.search(rf"((?:    #: [^\n]*\n)+)    {field.name}: ", source)
        assert said, f"Settings.{field.name} has no comment"
        text = " ".join(re.findall(r"#: ([^\n]*)", said.group(1))).replace("|", "\\|")
        default = f'"{field.default}"' if isinstance(field.default, str) else str(field.default).lower()
        rows.append(f"| `{field.name}` | `{default}` | {text} |")
    return "\n".join(rows) + "\n"


def test_settings():
    guide = GUIDE.read_text()
    assert BLOCK.search(guide)
    wanted = BLOCK.sub(lambda found: found.group(1) + table() + found.group(2), guide)
    if os.environ.get("UPDATE"):
        GUIDE.write_text(wanted)
    assert GUIDE.read_text() == wanted, "run UPDATE=1 pytest python/tests/test_vllm_docs.py"


def test_versions():
    compat = (ROOT / "python/kvpipe/vllm/compat.py").read_text()
    oldest, newest = (".".join(n) for n in re.findall(r"\((\d+), (\d+)\)", re.search(r"OLDEST, NEWEST = .*", compat).group()))
    for page in (GUIDE, ROOT / "README.md"):
        assert f"vLLM {oldest} to {newest}" in page.read_text(), page
