"""A client of one vLLM server: one kept connection, requests one after another, times of what comes back."""
import http.client
import json
import time

ASK_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
               "remote_block_ids": None, "remote_host": None, "remote_port": None}


class Failed(Exception):
    """What a server answered instead of what it was asked for."""


class Client:
    """Times are time.monotonic(), in seconds. Not for several threads at once."""

    def __init__(self, port):
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def close(self):
        self._connection.close()

    def _post(self, body):
        self._connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise Failed(f"HTTP {answer.status} of port {self.port}: {answer.read(500)!r}")
        return answer

    def complete(self, prompt, tokens=1, **more):
        """(the answer, when it was there)"""
        answer = self._post({"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, **more})
        body = answer.read()
        return json.loads(body), time.monotonic()

    def stream(self, prompt, tokens, **more):
        """(text, when each piece of it came)"""
        answer = self._post({"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
                             "stream": True, **more})
        text, times = "", []
        while True:
            line = answer.readline()
            if not line:
                raise Failed(f"port {self.port} ended a stream early")
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            if line.startswith(b"data: [DONE]"):
                answer.read()
                return text, times
            data = json.loads(line[6:])
            if "error" in data:
                raise Failed(f"port {self.port}: {data['error']}")
            text += data["choices"][0]["text"]
            times.append(now)

    def metric(self, name):
        """The sum of a Prometheus counter or gauge over its labels; 0 when it is not there."""
        self._connection.request("GET", "/metrics")
        text = self._connection.getresponse().read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith((name + "{", name + " ")))
