"""Finding the library, and what is said when it is not there."""

import os
import shutil
import subprocess
import sys

import kvpipe
import pytest
from daemons import ROOT


def python(code, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("KVPIPE_LIBRARY", "LD_LIBRARY_PATH", "PYTHONPATH")}
    env.update(environment)
    env.setdefault("PYTHONPATH", os.path.dirname(os.path.dirname(kvpipe.__file__)))
    done = subprocess.run([sys.executable, "-B", "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CATCH = """
import kvpipe
try:
    print(kvpipe.version())
except kvpipe.Error as error:
    print(type(error).__name__, error)
"""


def test_named_by_the_environment():
    assert python(CATCH, KVPIPE_LIBRARY=os.environ["KVPIPE_LIBRARY"]) == (ROOT / "VERSION").read_text().strip()


def test_named_wrongly():
    said = python(CATCH, KVPIPE_LIBRARY="/nowhere/libkvpipe.so.0")
    assert said.startswith("Unavailable") and "/nowhere/libkvpipe.so.0" in said and "KVPIPE_LIBRARY" in said


def test_not_there():
    said = python(CATCH)
    if said[0].isdigit():
        pytest.skip("libkvpipe is installed on this machine")
    assert said.startswith("Unavailable") and "libkvpipe.so.0" in said and "set KVPIPE_LIBRARY" in said


def test_another_library():
    said = python(CATCH, KVPIPE_LIBRARY="libc.so.6")
    assert said.startswith("Incompatible") and "kvpipe_connect" in said


def test_beside_the_package(tmp_path):
    package = tmp_path / "kvpipe"
    shutil.copytree(os.path.dirname(kvpipe.__file__), package)
    shutil.copy(os.environ["KVPIPE_LIBRARY"], package / "libkvpipe.so.0")
    said = python("import kvpipe; kvpipe.version(); print(kvpipe._library.library().path)", PYTHONPATH=str(tmp_path))
    assert said == str(package / "libkvpipe.so.0")


def test_import_needs_neither_library_nor_numpy():
    code = "import sys; sys.modules['numpy'] = sys.modules['torch'] = None; import kvpipe; print(kvpipe.NO_BLOCK)"
    assert python(code) == "4294967295"


def test_a_child_forked_while_another_thread_loads_it_loads_its_own():
    said = python("""
import os, signal, threading
import kvpipe
from kvpipe import _library
found, began, end = _library._open, threading.Event(), threading.Event()
def slow():
    began.set(), end.wait()
    return found()
_library._open = slow
loading = threading.Thread(target=kvpipe.version)
loading.start()
began.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # the default action ends it
    _library._open = found
    os._exit(not kvpipe.version())
print(os.waitpid(pid, 0)[1])
end.set(), loading.join()
""", KVPIPE_LIBRARY=os.environ["KVPIPE_LIBRARY"])
    assert said == "0"


def test_numbers_agree():
    metadata = pytest.importorskip("importlib.metadata")
    number = (ROOT / "VERSION").read_text().strip()
    assert kvpipe.__version__ == metadata.version("kvpipe") == kvpipe.version() == number


def test_no_daemon(tmp_path):
    with pytest.raises(kvpipe.Unavailable) as error:
        kvpipe.connect(str(tmp_path / "none.sock"), engine_id="e")
    assert "none.sock" in str(error.value) and "kvpiped --dev" in str(error.value)
    assert error.value.reason == kvpipe.Reason.UNAVAILABLE and error.value.completion is None
