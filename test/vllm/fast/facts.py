"""What versions of vLLM ask of a connector, read from their source: names and parameters of the hooks, and whether the
symbols are there that kvpipe.vllm.compat uses. One file for each minor version in facts/.

usage: facts.py VERSION...      (their source distributions have to be there: sources.py)
"""

import ast
import json
import sys

import sources
from places import HERE, ROOT

BASE = "vllm/distributed/kv_transfer/kv_connector/v1/base.py"
TIERING = "vllm/v1/kv_offload/tiering/p2p/data/base.py"
CLASSES = {BASE: ("KVConnectorBase_V1", "SupportsHMA"), TIERING: ("DataTransport",)}
FOLDER = HERE / "facts"


def hooks(text, classes):
    """Method -> {"kind", "abstract", "parameters": [[name, kind, whether it has a default]]} of each class."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            found[node.name] = {m.name: _method(m) for m in node.body
                                if isinstance(m, ast.FunctionDef) and (not m.name.startswith("_") or m.name == "__init__")}
    return found


def _method(node):
    marks = {ast.unparse(d) for d in node.decorator_list}
    kind = next((k for k in ("property", "classmethod", "staticmethod") if k in marks), "method")
    return {"kind": kind, "abstract": "abstractmethod" in marks, "parameters": _parameters(node.args, kind)}


def _parameters(args, kind):
    every = [*args.posonlyargs, *args.args]
    first = len(every) - len(args.defaults)
    out = [[a.arg, "positional", i >= first] for i, a in enumerate(every)]
    out = out[0 if kind == "staticmethod" else 1:]  # self or cls
    if args.vararg:
        out.append([args.vararg.arg, "*", False])
    out += [[a.arg, "keyword", d is not None] for a, d in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg:
        out.append([args.kwarg.arg, "**", False])
    return out


def uses():
    """(module, name) of what compat.py gets from vLLM."""
    tree = ast.parse((ROOT / "python/kvpipe/vllm/compat.py").read_text())
    constants = {t.id: n.value.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
                 for t in n.targets if isinstance(t, ast.Name)}
    scopes = [(n, dict(constants)) for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.FunctionDef))]
    out = set()
    for scope, names in scopes:
        names.update({t.id: n.value.value for n in ast.walk(scope) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
                      for t in n.targets if isinstance(t, ast.Name)})
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "_get":
                module, name = (names.get(a.id) if isinstance(a, ast.Name) else getattr(a, "value", None) for a in node.args)
                if module and name:
                    out.add((module, name))
    return sorted(out)


def defines(text, name):
    """Whether a module's source makes that name, at its top or under an if or try there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any((a.asname or a.name) == name for a in node.names):
            return True
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return True
    return False


def of(version):
    modules = {f"{module}.{name}": module.replace(".", "/") for module, name in uses()}
    texts = sources.read(version, [*CLASSES, *(p + end for p in modules.values() for end in (".py", "/__init__.py"))])
    facts = {"version": version, "hooks": {}, "symbols": {}}
    for path, classes in CLASSES.items():
        facts["hooks"].update(hooks(texts.get(path, ""), classes))
    for symbol, path in modules.items():
        text = texts.get(path + ".py") or texts.get(path + "/__init__.py")
        facts["symbols"][symbol] = text is not None and defines(text, symbol.rpartition(".")[2])
    return facts


def known():
    """Minor version -> its facts, oldest first."""
    out = {tuple(map(int, p.stem.split("."))): json.loads(p.read_text()) for p in FOLDER.glob("*.json")}
    return dict(sorted(out.items()))


def _compact(value, depth=0):
    """JSON with a line for each hook."""
    if depth < 3 and isinstance(value, dict):
        inner = ",\n".join("  " * (depth + 1) + json.dumps(k) + ": " + _compact(v, depth + 1) for k, v in value.items())
        return "{\n" + inner + "\n" + "  " * depth + "}"
    return json.dumps(value)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / (".".join(wanted.split(".")[:2]) + ".json")).write_text(_compact(of(wanted)) + "\n")
