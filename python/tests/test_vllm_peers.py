"""The line that a peer gets at its first load."""

import contextlib
import logging
import os
import socket
import tempfile
import threading

import pytest

from kvpipe.vllm import peers
from kvpipe.vllm.peers import Peers, connect, line, places

EXPLAINED = {"transport": "tcp", "gbps": 5.1, "choices": [
    {"transport": "local", "answer": "refused", "reason": "another node"}, {"transport": "rdma", "answer": "refused", "reason": "no device"},
    {"transport": "tcp", "answer": "chosen"}, {"transport": "slower", "answer": "possible"}]}


def test_what_is_better_and_why_it_is_not_used():
    assert line(EXPLAINED, 1e9) == "tcp, 5.1 GB/s measured; local refused: another node; rdma refused: no device"


def test_a_rate_that_the_daemon_has_not_measured_is_the_first_load():
    assert line({"transport": "local", "gbps": 0, "choices": []}, 25e8) == "local, 2.5 GB/s measured"


@pytest.mark.parametrize("nothing", [{"transport": "", "gbps": None, "choices": None}, {"transport": None}])
def test_what_the_daemon_does_not_know_is_left_out(nothing):
    assert line(nothing, 25e8) == "no transport, 2.5 GB/s measured"


@pytest.fixture
def said(caplog):
    def wait():
        for thread in threading.enumerate():
            if thread.name == "kvpipe-peer":
                thread.join(60)
        return [record.getMessage() for record in caplog.records]
    caplog.set_level(logging.INFO, "vllm.kvpipe")
    return wait


def test_a_peer_is_met_once(near, said, monkeypatch):
    monkeypatch.setenv("KVPIPE_ADMIN", str(near.admin))
    met = Peers("here", "", True)
    for _ in range(3):
        met.met(near.node, 1e9)
    assert [text for text in said() if near.node in text and "here: local, " in text] == said()
    assert len(said()) == 1


@pytest.mark.parametrize("named", ["by the engine's settings", "by its environment"])
def test_the_daemon_that_is_asked_is_the_engines(near, said, monkeypatch, named):
    monkeypatch.delenv("KVPIPE_ADMIN", raising=False)
    monkeypatch.setenv("KVPIPE_SOCKET", "/nowhere/kvpiped.sock" if "settings" in named else near.socket)
    Peers("here", near.socket if "settings" in named else "", True).met(near.node, 1e9)
    assert len(said()) == 1 and "here: local, " in said()[0]


def test_who_may_not_ask_the_daemon_says_how_to(said, monkeypatch, tmp_path):
    monkeypatch.delenv("KVPIPE_ADMIN", raising=False)
    Peers("here", str(tmp_path / "kvpiped.sock"), True).met("there", 1e9)
    assert len(said()) == 1 and 'there -> here: first load at 1 GB/s; "kvpipectl explain there"' in said()[0]


def test_the_daemon_is_asked_where_kvpipectl_finds_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KVPIPE_ADMIN", raising=False)
    assert places("") == ["/run/kvpipe/admin.sock", f"{tmp_path}/kvpipe/admin.sock"]
    assert places("/else/kvpiped.sock") == ["/else/admin.sock"]
    monkeypatch.setenv("KVPIPE_ADMIN", "/told")
    assert places("/else/kvpiped.sock") == ["/told"]


def listener(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


def test_a_dead_socket_hides_no_daemon(tmp_path):
    system, dev = tmp_path / "system", tmp_path / "dev"
    with listener(dev):
        for left_behind in (False, True):
            if left_behind:
                listener(system).close()
            with connect([str(system), str(dev)]) as sock:
                assert sock.getpeername() == str(dev)
            with connect([str(tmp_path / "dev/below"), str(dev)]) as sock:
                assert sock.getpeername() == str(dev)
        with pytest.raises(ConnectionRefusedError):
            connect([str(system)])
    with listener(tmp_path / "live") as live, connect([live.getsockname(), str(dev)]) as sock:
        assert sock.getpeername() == live.getsockname()


def test_nobody_is_asked_in_a_directory_of_tmp_that_others_may_have_made(monkeypatch, tmp_path):
    folder = tmp_path / "kvpipe"
    monkeypatch.setattr(peers, "_in_tmp", lambda: str(folder))
    with pytest.raises(FileNotFoundError):  # there is none
        connect([str(folder / "admin.sock")])
    folder.mkdir(mode=0o755)
    (folder / "node-a").mkdir()
    for place in (folder / "admin.sock", folder / "node-a/admin.sock"):
        with listener(place):
            folder.chmod(0o755)
            with pytest.raises(PermissionError, match="is not this user's alone"):
                connect([str(place)])
            with pytest.raises(PermissionError, match="is not this user's alone"):
                connect([str(place).replace("/kvpipe/", "/./kvpipe//")])
            folder.chmod(0o700)
            connect([str(place)]).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="one user alone cannot be two: run it as root")
def test_nor_is_another_user_who_listens_there(monkeypatch, tmp_path):
    folder = tmp_path / "kvpipe"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(peers, "_in_tmp", lambda: str(folder))
    with listener(folder / "admin.sock"):
        os.chown(folder, 65534, 65534)
        with pytest.raises(PermissionError, match="is not this user's alone"):
            connect([str(folder / "admin.sock")])
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        with pytest.raises(PermissionError, match="another user listens there"):
            connect([str(folder / "admin.sock")])


def as_nobody(run):
    """In a child: what run returns, as a user to whom a mode means something."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setegid(65534)
                os.seteuid(65534)
            os.write(writing, run().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.parametrize("engines, found", [(None, "dev"), (0, "dev"), (0o666, "barred")])
def test_a_daemon_that_is_not_for_us_hides_no_other_one_unless_our_engines_use_it(engines, found):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_:
        os.chmod(folder, 0o755)
        system, dev = os.path.join(folder, "admin.sock"), os.path.join(folder, "dev")
        for path, mode in ((system, 0), (dev, 0o666)):
            open_.enter_context(listener(path))
            os.chmod(path, mode)
        if engines is not None:
            beside = open_.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            beside.bind(os.path.join(folder, "kvpiped.sock"))
            beside.listen()
            os.chmod(os.path.join(folder, "kvpiped.sock"), engines)

        def who(*paths):
            try:
                with connect([*paths]) as sock:
                    return os.path.basename(sock.getpeername())
            except PermissionError:
                return "barred"

        assert as_nobody(lambda: who(system, dev)) == found
        assert as_nobody(lambda: who(system, os.path.join(folder, "none"))) == "barred"


def test_nobody_wants_to_know(said):
    Peers("here", "", False).met("there", 1e9)
    assert said() == []
