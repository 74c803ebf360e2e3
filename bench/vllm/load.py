"""Requests that arrive at random times at a given rate, and when the tokens of their answers come."""
import asyncio
import json
import random
import time

import aiohttp

PATIENCE = 300  # seconds for a request


async def _request(session, url, body, seconds):
    """(arrival times of the tokens, the request's own first, number of tokens); None when it failed."""
    await asyncio.sleep(seconds)
    times, tokens = [time.monotonic()], 0
    try:
        async with session.post(url + "/v1/completions", json=body) as answer:
            if answer.status != 200:
                return None
            async for line in answer.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                data = json.loads(line[6:])
                if "error" in data:
                    return None
                if data["choices"]:  # a token, whose text may be empty; several for who reads slowly
                    times.append(time.monotonic())
                if data.get("usage"):
                    tokens = data["usage"]["completion_tokens"]
    except (aiohttp.ClientError, asyncio.TimeoutError):
        return None
    return (times, tokens or len(times) - 1) if len(times) > 1 else None


async def _drive(url, bodies, rate, draw):
    at, tasks = 0.0, []
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        for body in bodies:
            tasks.append(asyncio.ensure_future(_request(session, url, body, at)))
            at += draw.expovariate(rate)
        return await asyncio.gather(*tasks)


def drive(url, prompts, rate, tokens, model="tiny", seed=1):
    """One stream of requests, at `rate` a second on average (exponential pauses, the same for the same seed).

    Returns {"ttft": [seconds], "itl": [seconds], "tokens": number, "failed": number, "seconds": from the first request to the last token}.
    """
    bodies = [{"model": model, "prompt": p, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
               "stream_options": {"include_usage": True}} for p in prompts]
    begin = time.monotonic()
    answers = asyncio.run(_drive(url, bodies, rate, random.Random(seed)))
    good = [answer[0] for answer in answers if answer]
    return {"ttft": [times[1] - times[0] for times in good],
            "itl": [b - a for times in good for a, b in zip(times[1:], times[2:])],
            "tokens": sum(answer[1] for answer in answers if answer), "failed": len(answers) - len(good), "seconds": time.monotonic() - begin}
