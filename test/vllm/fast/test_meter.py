"""What bench/vllm/meter.py reads of a connector's threads."""

import struct
import sys
import threading
import time

from places import ROOT

sys.path.append(str(ROOT / "bench/vllm"))
import meter  # noqa: E402


def test_a_thread_that_has_ended_has_used_what_it_has_used(tmp_path):
    """Else the difference of two readings would be less than the connector spent between them, or below zero."""
    path = tmp_path / "meter"
    meter.create(path)
    counter, reader, goes = meter._Counter(path, "worker"), meter.Meter(path), threading.Event()
    worked = threading.Event()

    def work():
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        worked.set()
        goes.wait()

    threads = []
    counter.timed("start", lambda: threads.append(threading.Thread(target=work)) or threads[0].start())()
    worked.wait()
    before = reader.read()["worker"][1]
    goes.set()
    threads[0].join()
    assert reader.read()["worker"][1] >= before > 0.01
