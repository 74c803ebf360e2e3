"""docs/vllm.md has the connector's settings as they are. UPDATE=1 writes them. docs/ARCHITECTURE.md has its size."""

import ast
import dataclasses
import io
import os
import re
import tokenize

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


def code(source):
    """Lines that have more than comments and docstrings."""
    said = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            said.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    there = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing:
            there.update(range(token.start[0], token.end[0] + 1))
    return len(there - said)


def test_size():
    """What "Departures" says of it: about, as it grows by a few lines at a time."""
    text = " ".join((ROOT / "docs/ARCHITECTURE.md").read_text().split())
    whole = re.search(r"that the design gives it\*\*: ([\d,]+) of code, without comments and the adapter for vLLM's tier of offloaded KV \((\d+)\)\. "
                      r"(Hooks, .*?)\. The 800 lines", text)
    assert whole
    files = {path: path.read_text() for path in (ROOT / "python/kvpipe/vllm").glob("*.py")}
    tier = sum(code(text) for path, text in files.items() if path.name.startswith("tier"))
    rest = sum(code(text) for path, text in files.items()) - tier
    said, parts = int(whole[1].replace(",", "")), [int(n) for n in re.findall(r"\b\d+\b", whole[3])]
    assert abs(said - rest) <= 100 and abs(int(whole[2]) - tier) <= 30, f"{rest} lines, and {tier} for the tier"
    assert len(parts) == 9 and abs(sum(parts) - said) <= 20
    assert not [path.name for path, text in files.items() if text.count("\n") > 200]
