"""Processes: forks, deaths, exits, and what the daemon has left of them."""

import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref

import kvpipe
import pytest
from caches import Cache
from daemons import Daemon
from engines import LATE, gone, idle, until


def run(code, socket, **more):
    env = {**os.environ, "KVPIPE_SOCKET": socket, "PYTHONPATH": f"{os.path.dirname(__file__)}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen([sys.executable, "-B", "-X", "faulthandler", "-c", textwrap.dedent(code)], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def finish(process, line=None):
    out, err = process.communicate(line, timeout=60)
    assert process.returncode == 0, (process.returncode, out, err)
    return out.strip()


def test_fork(near):
    """The child gets Closed, finds zeros where the memory was, and can connect for itself."""
    out = finish(run("""
        import os, gc, kvpipe
        from caches import Cache
        cache = Cache(None, "forks")
        memory = memoryview(cache.region)
        memory[0] = 7
        offer = cache.node.offer("k", [1], tokens=16)
        child = os.fork()
        if child == 0:
            said = []
            for call in (cache.node.poll, cache.node.fileno, offer.wait, lambda: offer.released, lambda: offer.withdraw(),
                         lambda: cache.node.alloc(4096), lambda: cache.node.progress(1)):
                try:
                    call()
                except kvpipe.Closed as error:
                    said.append("parent process" in str(error))
            assert said == [True] * 7, said
            assert memory[0] == 0 and not cache.node.connected
            memory[0] = 1
            cache.close()
            cache.region.close()
            del memory
            gc.collect()
            with Cache(None, "forks-child") as own:
                own.node.offer("k2", [1], tokens=16).withdraw()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert memory[0] == 7 and cache.node.connected and offer.withdraw()
        cache.close()
        print("ok")
        """, near.socket))
    assert out == "ok"


def test_fork_in_a_signal_handler(near):
    """The child returns from it into a call of its parent's, which raises Closed there."""
    out = finish(run("""
        import os, signal, kvpipe
        from caches import Cache
        cache, forked = Cache(None, "forks"), []
        take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
        signal.signal(signal.SIGUSR1, lambda *_: forked.append(os.fork()))
        with cache.node._session:
            signal.raise_signal(signal.SIGUSR1)
        if forked == [0]:
            try:
                take.wait(60)
            except kvpipe.Closed as error:
                os._exit("parent process" not in str(error))
            os._exit(2)
        _, status = os.waitpid(forked[0], 0)
        assert status == 0, status
        take.cancel(60)
        cache.close()
        print("ok")
        """, near.socket))
    assert out == "ok"


def test_a_child_keeps_what_others_put_where_a_region_was(near):
    """A handler of the fork that comes first may be given those addresses. What it has there is its own, to the end."""
    out = finish(run("""
        import ctypes, gc, mmap, os
        libc, page = ctypes.CDLL(None), mmap.PAGESIZE
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

        def handler():
            for others in there, hidden:
                assert libc.mmap(others, 8 * page, 1 | 2, 2 | 32, -1, 0) == others
                ctypes.memset(others, 90, 8 * page)

        os.register_at_fork(after_in_child=handler)
        import kvpipe
        node = kvpipe.connect(engine_id="forks")
        region = node.alloc(64 * page, huge=False)
        memory, there = memoryview(region), region.address + 16 * page
        hidden = node.alloc(8 * page, huge=False).address  # the session alone has that one
        memory[:] = b"7" * region.nbytes
        child = os.fork()
        if child == 0:
            assert bytes(memory) == bytes(16 * page) + b"Z" * (8 * page) + bytes(40 * page)
            memory[0] = 1
            del memory
            region.close()
            assert not region.registered
            del region
            gc.collect()
            for others in there, hidden:
                assert ctypes.string_at(others, 8 * page) == b"Z" * (8 * page)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert bytes(memory) == b"7" * region.nbytes
        node.close()
        print("ok")
        """, near.socket))
    assert out == "ok"


def test_a_child_keeps_what_others_put_where_a_received_tensor_was(near):
    """It finds zeros in the rest of it."""
    out = finish(run("""
        import ctypes, mmap, os
        libc, page = ctypes.CDLL(None), mmap.PAGESIZE
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

        def handler():
            assert libc.mmap(others, 8 * page, 1 | 2, 2 | 32, -1, 0) == others
            ctypes.memset(others, 90, 8 * page)

        os.register_at_fork(after_in_child=handler)
        import kvpipe
        with kvpipe.connect(engine_id="forks") as node, node.pipe("between", "send", capacity=1 << 20) as tx, \
                node.pipe("between", "recv") as rx:
            tx.send_tensor(b"7" * (64 * page))
            got = rx.recv_tensor(framework="raw").data
            address = ctypes.addressof(ctypes.c_char.from_buffer(got))
            others = address // page * page + 16 * page
            child = os.fork()
            if child == 0:
                there = bytes(got)
                assert there.count(b"Z") == 8 * page and there.find(b"Z") == others - address
                assert there.strip(b"\\0") == b"Z" * (8 * page)
                got[0] = 1
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            assert bytes(got) == b"7" * (64 * page)
        print("ok")
        """, near.socket))
    assert out == "ok"


@pytest.mark.parametrize("how", ["open", "region closed", "node closed"])
def test_a_child_finds_zeros_where_arrays_over_a_region_lie(near, how):
    """Whatever else of it is there still."""
    with kvpipe.connect(near.socket, engine_id="zeros") as node:
        region = node.alloc(8192)
        memory = memoryview(region)
        memory[:] = b"7" * 8192
        if how != "open":
            (region if how == "region closed" else node).close()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert bytes(memory) == bytes(8192)
                memory[:] = b"8" * 8192
                grandchild = os.fork()  # it has a copy
                if grandchild == 0:
                    os._exit(bytes(memory) != b"8" * 8192)
                assert os.waitpid(grandchild, 0)[1] == 0
                region.close()
                del memory, region
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert bytes(memory) == b"7" * 8192


def test_exit_without_close(near):
    """Also with a daemon thread that waits: it does not come back to fail while the interpreter goes."""
    out = finish(run("""
        import atexit, queue, threading, types
        what = queue.Queue()
        atexit.register(lambda: print(what.get(timeout=60)))  # runs after the handler of kvpipe
        import kvpipe
        from kvpipe import _session

        class Bed(threading.Event):  # where the thread lies down for ever
            def wait(self):
                what.put("stays")
                super().wait()

        _session.threading = types.SimpleNamespace(**{**vars(threading), "Event": Bed})
        from caches import Cache
        cache = Cache(None, "exits")
        memory = memoryview(cache.region)
        take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
        entered = threading.Event()
        def wait():
            entered.set()
            try:
                take.wait()
            finally:
                what.put("comes back")
        threading.Thread(target=wait, daemon=True).start()
        entered.wait()
        """, near.socket))
    assert out == "stays"
    gone(near, "exits")


def test_a_daemon_that_stands_still_holds_up_an_exit_once(folder):
    """Not once for each end."""
    daemon = Daemon(folder / "exit", "exit", folder / "ca")
    process = run("""
        import kvpipe
        node = kvpipe.connect(engine_id="exits")
        ends = [node.pipe(str(i), "send", capacity=4096) for i in range(8)]
        print("open", flush=True)
        input()
        """, daemon.socket, stdin=subprocess.PIPE)
    try:
        assert process.stdout.readline() == "open\n"
        daemon.freeze()
        began = time.monotonic()
        finish(process, "\n")
        assert time.monotonic() - began < 5 + LATE
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        daemon.stop()


def test_who_submits_after_the_exit_hears_that_the_session_is_closed(near):
    """Also when it ended as a daemon thread submitted, which stays where it was."""
    out = finish(run("""
        import atexit, contextlib, threading
        def late():  # runs after the handler of kvpipe
            with contextlib.suppress(kvpipe.Closed):
                print(node.watch("late", None, b"0" * 16))
            print("closed")
        atexit.register(late)
        import kvpipe
        node, began = kvpipe.connect(engine_id="exits"), threading.Event()
        def submit():
            while True:
                with contextlib.suppress(kvpipe.Quota):
                    node.watch("none", None, b"0" * 16, timeout=0.1)
                began.set()
        threading.Thread(target=submit, daemon=True).start()
        began.wait()
        """, near.socket))
    assert out == "closed"


def test_an_exit_closes_sessions_while_a_daemon_thread_makes_others(near):
    out = finish(run("""
        import atexit, sys, threading
        atexit.register(lambda: print(node._session.closed))  # runs after the handler of kvpipe
        import kvpipe
        from kvpipe import _session
        sys.setswitchinterval(1e-6)
        node = kvpipe.connect(engine_id="exits")
        def made():
            return _session.Session(node._session.lib, 1, lambda handle: None)
        kept, began = [made() for _ in range(10000)], threading.Event()
        def more():
            while not node._session.closed:
                kept.append(made())
                began.set()
        threading.Thread(target=more, daemon=True).start()
        began.wait()
        """, near.socket))
    assert out == "True"


def test_kill(near, far):
    """kill -9 of a producer: its taker is told, and everything of it goes."""
    process = run("""
        import signal, kvpipe
        from caches import Cache
        cache = Cache(None, "victim")
        cache.fill(1, 1)
        print(cache.node.offer("half", [1], tokens=16, sealed=False).token.hex(), flush=True)
        signal.pause()
        """, near.socket)
    token = bytes.fromhex(process.stdout.readline())
    with Cache(far.socket, "taker") as taker:
        take = taker.node.take("half", [1, 2], peer="near", token=token, tokens=32)
        with pytest.raises(kvpipe.Timeout):
            take.wait(0.1)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(kvpipe.PeerGone):
            take.wait(60)
        take.wait_released(60)
        assert take.failed_blocks == [1, 2]
        process.communicate()
        gone(near, "victim")
        with Cache(near.socket, "victim") as heir:  # the same name starts clean
            heir.fill(1, 4)
            offer = heir.node.offer("half", [1], tokens=16, token=token)
            until(lambda: near.ask("offers"), "the offer is there, in place of the dead one's end")
            taker.node.take("half", [1], peer="near", token=offer.token, tokens=16).wait(60)
            assert taker.holds(1, 4)


def test_daemon_dies(folder):
    daemon = Daemon(folder / "mortal", "mortal", folder / "ca")
    cache = Cache(daemon.socket, "survivor")
    take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
    daemon.kill()
    assert take.cancel(60)  # nobody knows of it any more
    with pytest.raises(kvpipe.Cancelled):
        take.wait(60)
    assert take.released and not cache.node.connected
    cache.node.offer("k", [1], tokens=16)  # for the next daemon
    cache.close()


def test_memory_is_released_with_its_session(near):
    with Cache(near.socket, "closing") as cache:
        operations = [cache.node.offer("k", [0], tokens=16), cache.node.watch("none", None, b"0" * 16),
                      cache.node.take("never", [1], token=b"0" * 16, tokens=16)]
        assert not operations[-1].released
    for operation in operations:
        assert operation.released and operation.wait_released() is None
        with pytest.raises(kvpipe.Closed):
            operation.wait()


def test_memory_is_not_released_by_a_daemon_that_stands_still(folder):
    daemon = Daemon(folder / "still", "still", folder / "ca")
    cache = Cache(daemon.socket, "closing")
    take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
    daemon.freeze()
    cache.close()
    with pytest.raises(kvpipe.Closed):
        take.released
    daemon.process.send_signal(signal.SIGCONT)
    daemon.stop()


def test_close_does_not_wait_for_ever_for_a_call_that_a_daemon_does_not_answer(folder):
    daemon = Daemon(folder / "mute", "mute", folder / "ca")
    cache = Cache(daemon.socket, "closing")
    offer = cache.node.offer("k", [0], tokens=16)
    daemon.freeze()
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            withdrawn = pool.submit(offer.withdraw, timeout=60)
            until(lambda: cache.node._session._inside, "the call has begun")
            began = time.monotonic()
            cache.close()
            assert time.monotonic() - began < 10 + LATE
            with pytest.raises(kvpipe.Closed):
                cache.node.poll()
            assert not withdrawn.done()
            daemon.process.send_signal(signal.SIGCONT)
            with pytest.raises(kvpipe.Closed):
                withdrawn.result(60)
            assert offer.released  # it was answered all the same
        idle(daemon)  # the call has closed the session as it left
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        daemon.stop()


def test_memory_that_is_never_released_is_not_waited_for_for_ever(folder, monkeypatch):
    monkeypatch.setattr(kvpipe.operation, "_PAST_NS", 200_000_000)
    daemon = Daemon(folder / "never", "never", folder / "ca")
    with Cache(daemon.socket, "waiting") as cache, concurrent.futures.ThreadPoolExecutor(1) as pool:
        take = cache.node.take("never", [1], token=b"0" * 16, tokens=16, timeout=0.1)
        daemon.freeze()
        try:
            with pytest.raises(kvpipe.Timeout, match="wait_released: .*not within 0.[23] s"):
                pool.submit(take.wait_released).result(60)
            assert not take.released
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        take.wait_released(60)
    daemon.stop()


def test_garbage(near):
    """Nothing is closed by hand."""
    cache = Cache(near.socket, "garbage")
    memory = memoryview(cache.region)
    take = cache.node.take("never", [1], token=b"0" * 16, tokens=16)
    del cache
    gc.collect()
    assert not take.done  # an operation keeps its node
    del take
    gc.collect()
    gone(near, "garbage")
    memory[0] = 1
    del memory


@pytest.mark.parametrize("how", ["dropped", "closed"])
@pytest.mark.parametrize("what", ["pipe", "lookup buffer"])
def test_an_end_keeps_its_node(near, name, what, how):
    """And nothing keeps it after that, with or without the garbage collector."""
    node = kvpipe.connect(near.socket, engine_id="kept")
    end = node.pipe(name, "send", capacity=4096) if what == "pipe" else node.lookup_buffer(name, capacity=4096)
    there = weakref.ref(node)
    region = node.alloc(4096)
    del node
    gc.collect()
    end.send_tensor(b"abc") if what == "pipe" else end.put("k", b"abc")
    assert there().connected and region.registered
    gc.disable()
    try:
        if how == "closed":
            end.close()
        else:
            del end
        assert there() is None and not region.registered
    finally:
        gc.enable()
    gone(near, "kept")


def test_sessions_end_with_their_block(near):
    with kvpipe.connect(near.socket, engine_id="block", rank=(1, 0), world=(2, 1)) as node:
        assert node.connected and node.name == "near" and node.instance and node.advertise.startswith("127.")
        with pytest.raises(kvpipe.Busy, match="rank"):
            kvpipe.connect(near.socket, engine_id="block", rank=(1, 0), world=(2, 1))
    gone(near, "block")
    assert "closed" in repr(node)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"engine_id": ""}, "engine_id"),
        ({"engine_id": "e" * 200}, "engine_id"),
        ({"role": "boss"}, "role"),
        ({"rank": (2, 0)}, "rank"),
        ({"rank": 1}, "rank"),
        ({"world": (0, 1)}, "world"),
        ({"timeout": -1}, "timeout"),
        ({"socket": "s" * 200}, "socket"),
    ],
    ids=str,
)
def test_bad_connects(near, change, said):
    with pytest.raises(kvpipe.Invalid, match=said):
        kvpipe.connect(**{"socket": near.socket, "engine_id": "e", **change})
