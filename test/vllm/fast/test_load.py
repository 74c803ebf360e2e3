"""What bench/vllm/serving.py counts: tokens, whether or not they are text, and requests that failed."""

import http.server
import json
import sys
import threading

import pytest
from places import ROOT

sys.path.append(str(ROOT / "bench/vllm"))
import load  # noqa: E402


class Instance(http.server.BaseHTTPRequestHandler):
    """Streams an answer whose pieces are set; None: it says nothing more."""

    pieces = ()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()
        for piece in self.pieces:
            if piece is None:
                return self.server.over.wait(30)
            self._say({"choices": [{"text": piece, "finish_reason": None}]})
        if asked["stream_options"]["include_usage"]:
            self._say({"choices": [], "usage": {"completion_tokens": 2 * len(self.pieces)}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_):
        pass


@pytest.fixture
def instance():
    """Its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Instance)
    server.over = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokens_without_a_text_are_tokens(instance, monkeypatch):
    """Half of a character is none, and some tokens never are; a slow reader gets several of them at once."""
    monkeypatch.setattr(Instance, "pieces", ("", "", "a", "", ""))
    got = load.drive(instance, [[2, 3], [4]], 1000, 10)
    assert (len(got["ttft"]), len(got["itl"]), got["tokens"], got["failed"]) == (2, 8, 20, 0)


def test_a_request_that_is_not_answered_in_time_has_failed(instance, monkeypatch):
    monkeypatch.setattr(load, "PATIENCE", 0.3)
    monkeypatch.setattr(Instance, "pieces", ("a", None))
    got = load.drive(instance, [[2, 3]], 1000, 10)
    assert (got["ttft"], got["itl"], got["tokens"], got["failed"]) == ([], [], 0, 1)
