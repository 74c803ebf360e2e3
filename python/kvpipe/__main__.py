"""The programs that a wheel carries.

    python -m kvpipe --dev           # kvpiped: the node's daemon, for one user, without a configuration
    python -m kvpipe ctl status      # kvpipectl

Arguments, output, signals and exit status are the program's own. If the package carries no programs (a wheel
built without Go, a source tree), those in ``PATH`` are used.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import List

_HERE = os.path.dirname(os.path.abspath(__file__))


def program(name: str) -> str:
    """The path of ``kvpiped`` or ``kvpipectl``: the package's own, else the one in ``PATH``. Raises
    SystemExit if there is none.
    """
    carried = os.path.join(_HERE, "bin", name)
    if os.access(carried, os.X_OK):
        return carried
    found = shutil.which(name)
    if found is None:
        raise SystemExit(
            f"kvpipe: {name} is neither in this package ({carried}) nor in PATH: install a wheel that carries it, "
            "or the package kvpiped of your distribution"
        )
    return found


def main(arguments: List[str]) -> None:
    """Becomes the program; does not return."""
    name = "kvpiped"
    if arguments[:1] == ["ctl"]:
        name, arguments = "kvpipectl", arguments[1:]
    path = program(name)
    os.execv(path, [path, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
