#!/usr/bin/env python3
"""Write what the packages are made of, as CycloneDX 1.5 JSON: the same for the same commit.

usage: packaging/sbom.py VERSION EPOCH GLIBC PROGRAM... >kvpipe.cdx.json

Go modules are those that `go version -m` finds in the programs, with the licences that their sources have. The library links the
C library alone, the Python package needs nothing. https://cyclonedx.org/docs/1.5/json/
"""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

GO = os.environ.get("GO", "go")
# The words by which a licence is known.
LICENCES = (
    ("Apache-2.0", r"Apache License\s+Version 2\.0"),
    ("BSD-3-Clause", r"Redistribution and use in source and binary forms(.|\n)*Neither the name"),
    ("BSD-2-Clause", r"Redistribution and use in source and binary forms"),
    ("MIT", r"Permission is hereby granted, free of charge"),
)


def ask(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def licence(name, folder):
    for path in sorted(folder.glob("LICENSE*")) + sorted(folder.glob("COPYING*")):
        text = path.read_text()
        for identifier, words in LICENCES:
            if re.search(words, text):
                return [{"license": {"id": identifier}}]
    raise SystemExit(f"sbom: {name} has no licence that is known here, in {folder}")


def modules(program):
    """{module: version} linked into a program, and the version of Go."""
    found, go = {}, ""
    for line in ask(GO, "version", "-m", program).split("\n"):
        words = line.split()
        if words[:1] == ["dep"]:
            found[words[1]] = words[2]
        elif words and words[0].startswith(str(program)):
            go = words[-1].replace("go", "", 1)
    return found, go


def component(kind, name, version, purl, licences, **more):
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, "licenses": licences, **more}


def document(version, epoch, glibc, programs):
    own = [{"license": {"id": "Apache-2.0"}}]
    root = f"pkg:generic/kvpipe@{version}"
    parts, needs = {}, {root: []}

    def add(owner, part):
        parts[part["bom-ref"]] = part
        needs.setdefault(part["bom-ref"], [])
        if part["bom-ref"] not in needs[owner]:
            needs[owner].append(part["bom-ref"])

    for program in map(Path, programs):
        arch = program.parent.parent.name
        linked, go = modules(program)
        ref = f"pkg:generic/{program.name}@{version}?arch={arch}"
        add(root, component("application", program.name, version, ref, own))
        add(ref, component("library", "stdlib", go, f"pkg:golang/stdlib@{go}", licence("Go", Path(ask(GO, "env", "GOROOT").strip()))))
        for module, number in sorted(linked.items()):
            folder = Path(ask(GO, "list", "-m", "-f", "{{.Dir}}", module).strip())
            add(ref, component("library", module, number, f"pkg:golang/{module}@{number}", licence(module, folder)))
    library, python, libc = f"pkg:generic/libkvpipe@{version}", f"pkg:pypi/kvpipe@{version}", f"pkg:generic/glibc@{glibc}"
    add(root, component("library", "libkvpipe", version, library, own))
    add(root, component("library", "kvpipe", version, python, own))
    add(library, component("library", "glibc", glibc, libc, [{"license": {"id": "LGPL-2.1-or-later"}}],
                           description="the oldest version that works; not part of any package", scope="excluded"))
    needs[python].append(library)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{root} {sorted(parts)}')}",
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": component("application", "kvpipe", version, root, own),
        },
        "components": [parts[ref] for ref in sorted(parts)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(needs[ref])} for ref in sorted(needs)],
    }


if __name__ == "__main__":
    json.dump(document(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]), sys.stdout, indent=2)
    print()
