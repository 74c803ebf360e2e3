#!/usr/bin/env python3
"""A small proxy for disaggregated prefill: each request is prefilled by one vLLM instance and decoded by another.

    proxy.py --prefill http://a:8100 --prefill http://b:8100 --decode http://c:8200 --port 8000

The prefill instance gets the request with max_tokens 1 and `do_remote_decode`; the `kv_transfer_params` of its answer,
whatever is in them, go to the decode instance with the original request. Those of a decode instance's answer, which a
client sends with the next turn of its conversation, go to the prefill instance. Instances take turns. When a prefill instance
fails, the decode instance gets the request without parameters and computes the prompt itself: a user sees an error
only where the decode instance gives one. Whoever is at a request whose client goes away is let go of, and aborts it.
Without --prefill requests go round the decode instances as they are. Needs fastapi, httpx and uvicorn, which vLLM brings.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import uuid

import fastapi
import httpx
import uvicorn
from fastapi.responses import JSONResponse, Response, StreamingResponse

log = logging.getLogger("proxy")

# What a NIXL-shaped prefill request says: keep the blocks, somebody will come for them.
PREFILL = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
           "remote_host": None, "remote_port": None}


def kept(params):
    """The part of a client's parameters that is for a decode instance with nothing to load: how long to keep the KV."""
    ours = params.get("kvpipe") if isinstance(params, dict) else None
    return {"kvpipe": {"v": ours.get("v"), "keep": ours["keep"]}} if isinstance(ours, dict) and "keep" in ours else None


class Passed(StreamingResponse):
    """An instance's answer as it comes. The connection is let go of however it ends: an instance aborts what nobody reads any more."""

    def __init__(self, answer):
        super().__init__(answer.aiter_raw(), answer.status_code, {"content-type": answer.headers.get("content-type", "application/json")})
        self.answer = answer

    async def __call__(self, *connection):
        try:
            await super().__call__(*connection)
        finally:
            await self.answer.aclose()


async def left(request):
    """Returns when the client of a request that was read has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def unless_left(request, work):
    """The result of work. If the client goes away first, work is cancelled, and with it what it asks of an instance: nobody reads this answer."""
    work, gone = asyncio.ensure_future(work), asyncio.ensure_future(left(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await work
    return Response(status_code=499)


class Proxy:
    """Who gets the next request, and the connections to them."""

    def __init__(self, prefill, decode):
        self.prefill, self.decode = prefill and itertools.cycle(prefill), itertools.cycle(decode)
        # Idle connections are closed before the instance closes them, which vLLM does after 5 s.
        limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
        self.http = httpx.AsyncClient(timeout=None, trust_env=False, limits=limits)

    async def post(self, url, body, headers, stream=False):
        """An instance's answer. One that goes away before it answers is asked once more: mostly it has just closed a kept connection."""
        request = self.http.build_request("POST", url, json=body, headers=headers)
        try:
            return await self.http.send(request, stream=stream)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return await self.http.send(request, stream=stream)

    async def params(self, path, body, headers):
        """Has the prompt prefilled; the answer's kv_transfer_params, None when that failed."""
        url, turn = next(self.prefill), body.get("kv_transfer_params")
        request = {**body, "stream": False, "max_tokens": 1, "min_tokens": 1, "n": 1,
                   "kv_transfer_params": {**(turn if isinstance(turn, dict) else {}), **PREFILL}}
        request.pop("stream_options", None)
        if "max_completion_tokens" in request:
            request["max_completion_tokens"] = 1
        try:
            answer = await self.post(url + path, request, headers)
            answer.raise_for_status()
            return answer.json().get("kv_transfer_params")
        except (httpx.HTTPError, ValueError) as error:
            log.warning("prefill at %s failed, decode computes the prompt: %s", url, error or type(error).__name__)
            return None

    async def forward(self, path, request):
        body = await request.json()
        # Bytes are passed on as they come, so they have to be those that the client can read.
        headers = {"Accept-Encoding": "identity", "X-Request-Id": request.headers.get("x-request-id") or uuid.uuid4().hex}
        if "authorization" in request.headers:
            headers["Authorization"] = request.headers["authorization"]
        return await unless_left(request, self.answer(path, body, headers))

    async def answer(self, path, body, headers):
        if self.prefill:
            body["kv_transfer_params"] = await self.params(path, body, headers) or kept(body.get("kv_transfer_params"))
        url = next(self.decode)
        try:
            return Passed(await self.post(url + path, body, headers, stream=True))
        except httpx.HTTPError as error:
            return JSONResponse({"error": {"message": f"decode instance {url}: {error!r}", "type": "bad_gateway"}}, 502)


def application(prefill, decode):
    proxy = Proxy(prefill, decode)

    @contextlib.asynccontextmanager
    async def lifespan(_):
        yield
        await proxy.http.aclose()

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.post("/v1/completions")
    async def completions(request: fastapi.Request):
        return await proxy.forward("/v1/completions", request)

    @app.post("/v1/chat/completions")
    async def chat(request: fastapi.Request):
        return await proxy.forward("/v1/chat/completions", request)

    @app.get("/health")
    async def health():
        return {"status": "ok"}

    return app


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefill", action="append", default=[], metavar="URL", help="a prefill instance; may be repeated")
    parser.add_argument("--decode", action="append", required=True, metavar="URL", help="a decode instance; may be repeated")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    logging.basicConfig(format="%(name)s: %(message)s")
    strip = [[url.rstrip("/") for url in urls] for urls in (args.prefill, args.decode)]
    uvicorn.run(application(*strip), host=args.host, port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
