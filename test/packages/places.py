"""Where things are. `make test-packages` builds what the tests look at."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("KVPIPE_BIN", ROOT / "build/bin"))
sys.path.insert(0, str(ROOT / "packaging/man"))
