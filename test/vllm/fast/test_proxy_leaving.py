"""The example's proxy, and clients that go away: the instance that is at their request sees its connection end, by which vLLM aborts it."""

import asyncio
import contextlib
import json
import socket

import proxies
import pytest
import uvicorn

PARAMS = json.dumps({"kv_transfer_params": {"kvpipe": {}}}).encode()
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata:1\r\n"


def whole(body):
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


class Instance:
    """Says what it is given to each request, nothing at first where that is nothing, and waits for the end of the connection."""

    def __init__(self, says=b""):
        self.says, self.asked, self.ended = says, asyncio.Event(), asyncio.Event()

    async def __call__(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        writer.write(self.says)
        while await reader.read(65536):
            pass
        self.ended.set()
        writer.close()


async def post(port, stream):
    """A client's request, and the connection on which it waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": "x", "stream": stream}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    return reader, writer


@contextlib.asynccontextmanager
async def serving(prefill, decode):
    """The port of a proxy before two instances."""
    servers = [await asyncio.start_server(instance, "127.0.0.1") for instance in (prefill, decode)]
    urls = ["http://127.0.0.1:%d" % server.sockets[0].getsockname()[1] for server in servers]
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = uvicorn.Server(uvicorn.Config(proxies.load().application(urls[:1], urls[1:]), log_level="warning", timeout_graceful_shutdown=10))
    running = asyncio.create_task(proxy.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        proxy.should_exit = True
        await running
        for server in servers:
            server.close()


async def leaves(prefill, decode, at, stream, first=b""):
    """A client goes away when an instance has been asked, and it has read how its answer begins."""
    async with serving(prefill, decode) as port:
        reader, writer = await post(port, stream)
        await asyncio.wait_for(at.asked.wait(), 60)
        if first:
            await asyncio.wait_for(reader.readuntil(first), 60)
        assert not at.ended.is_set()
        writer.close()
        await asyncio.wait_for(at.ended.wait(), 60)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_prefilled_is_aborted_there(stream):
    async def run():
        prefill, decode = Instance(), Instance()
        await leaves(prefill, decode, prefill, stream)
        assert not decode.asked.is_set()
    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_not_begun_is_aborted(stream):
    async def run():
        decode = Instance()
        await leaves(Instance(whole(PARAMS)), decode, decode, stream)
    asyncio.run(run())


def test_a_stream_is_aborted():
    async def run():
        decode = Instance(STREAM)
        await leaves(Instance(whole(PARAMS)), decode, decode, True, b"data:1")
    asyncio.run(run())


def test_an_answer_is_passed_on_and_its_connection_kept():
    async def run():
        decode = Instance(whole(b'{"text": "y"}'))
        async with serving(Instance(whole(PARAMS)), decode) as port:
            reader, writer = await post(port, False)
            assert await asyncio.wait_for(reader.readuntil(b'{"text": "y"}'), 60)
            assert not decode.ended.is_set()
            writer.close()
    asyncio.run(run())


def test_an_answer_that_nobody_is_left_for_is_let_go_of():
    """It and the client's leaving came at once: nothing of it was read."""
    class Answer:
        status_code, headers, closed = 200, {}, False

        async def aiter_raw(self):
            yield b"x"

        async def aclose(self):
            self.closed = True

    async def gone():
        return {"type": "http.disconnect"}

    async def send(_):
        raise OSError("nobody is there")

    answer = Answer()
    with contextlib.suppress(Exception):
        asyncio.run(proxies.load().Passed(answer)({"type": "http", "asgi": {"spec_version": "2.3"}}, gone, send))
    assert answer.closed
