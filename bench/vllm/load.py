"""Requests that arrive at random times at a given rate, and when the tokens of their answers come."""
import asyncio
import json
import random
import time

import aiohttp


async def _request(session, url, body, seconds):
    """Arrival times of the tokens, the request's own first; None when it failed."""
    await asyncio.sleep(seconds)
    times = [time.monotonic()]
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
                if data["choices"][0]["text"] or data["choices"][0].get("finish_reason"):
                    times.append(time.monotonic())
    except aiohttp.ClientError:
        return None
    return times if len(times) > 1 else None


async def _drive(url, bodies, rate, draw):
    at, tasks = 0.0, []
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        for body in bodies:
            tasks.append(asyncio.ensure_future(_request(session, url, body, at)))
            at += draw.expovariate(rate)
        return await asyncio.gather(*tasks)


def drive(url, prompts, rate, tokens, model="tiny", seed=1):
    """One stream of requests, at `rate` a second on average (exponential pauses, the same for the same seed).

    Returns {"ttft": [seconds], "itl": [seconds], "failed": number, "seconds": from the first request to the last token}.
    """
    bodies = [{"model": model, "prompt": p, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
              for p in prompts]
    begin = time.monotonic()
    answers = asyncio.run(_drive(url, bodies, rate, random.Random(seed)))
    good = [times for times in answers if times]
    return {"ttft": [times[1] - times[0] for times in good],
            "itl": [b - a for times in good for a, b in zip(times[1:], times[2:])],
            "failed": len(answers) - len(good), "seconds": time.monotonic() - begin}
