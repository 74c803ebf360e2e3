"""The example's proxy, and instances that close connections which it keeps."""

import asyncio

import httpx
import proxies
import pytest


class Instance:
    """Answers the first request of each connection, as far as it has answers, and closes at the next."""

    def __init__(self, answers):
        self.answers, self.connections = answers, []

    async def __call__(self, reader, writer):
        self.connections.append(asyncio.current_task())
        if await self._request(reader) and self.answers:
            self.answers -= 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            await self._request(reader)
        writer.close()

    async def _request(self, reader):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        length = next(int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length"))
        await reader.readexactly(length)
        return True


async def asked(instance, times):
    """How many connections an instance saw that was asked so often."""
    server = await asyncio.start_server(instance, "127.0.0.1")
    url = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    ours = proxies.load().Proxy([], [url])
    try:
        for _ in range(times):
            assert (await ours.post(url + "/v1/completions", {}, {})).status_code == 200
    finally:
        await ours.http.aclose()
        server.close()
        await asyncio.gather(*instance.connections)
    return len(instance.connections)


def test_a_kept_connection_that_is_closed_costs_no_request():
    assert asyncio.run(asked(Instance(answers=3), times=3)) == 3


def test_an_instance_that_closes_every_connection_is_an_error():
    instance = Instance(answers=0)
    with pytest.raises(httpx.RemoteProtocolError):
        asyncio.run(asked(instance, times=1))
    assert len(instance.connections) == 2
