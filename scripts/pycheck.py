#!/usr/bin/env python3
"""Parse every Python file below the given folders as an older Python would.

usage: pycheck.py 3.9 FOLDER...

Prints file:line: message for each file that the named version could not read
and exits with 1 when there was one, or a folder has no Python file.
"""

import ast
import pathlib
import sys


def problems(version, folders):
    for folder in folders:
        paths = sorted(pathlib.Path(folder).rglob("*.py"))
        if not paths:
            yield f"{folder}: there is no Python file"
        for path in paths:
            if "build" in path.parts:
                continue
            try:
                ast.parse(path.read_text(), str(path), feature_version=version)
            except SyntaxError as error:
                yield f"{path}:{error.lineno}: {error.msg}"


def main():
    version = tuple(int(part) for part in sys.argv[1].split("."))
    found = list(problems(version, sys.argv[2:]))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
