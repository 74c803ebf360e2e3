"""Two prefill and two decode instances behind the proxy of examples/vllm."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from harness.fleet import Proxy
from harness.handover import equal, prompt, prompts, tokens
from harness.instance import BLOCK
from harness.wait import eventually

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def engines(fleet):
    """Two of each; they are ready."""
    both = [fleet.prefill(0), fleet.prefill(1)], [fleet.decode(0), fleet.decode(1)]
    for engine in both[0] + both[1]:
        engine.ready()
    return both


@pytest.fixture(scope="module")
def proxy(engines):
    with Proxy(*engines) as proxy:
        yield proxy


def finished(engine):
    return engine.metric("vllm:request_success_total")


def test_everybody_has_a_share_and_every_token_is_right(engines, proxy, reference):
    before = [finished(e) for e in engines[0] + engines[1]]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(proxy.completion, prompts()))
        expected = list(pool.map(reference.completion, prompts()))
    equal([tokens(a) for a in answers], [tokens(e) for e in expected])
    assert [finished(e) - b for e, b in zip(engines[0] + engines[1], before)] == [20] * 4
    for answer in answers:
        computed = [n for engine in engines[1] for n in engine.computed(answer["id"])]
        assert computed[0] == 1, "a decode instance computed the prompt"


@pytest.mark.parametrize("n", [2, 3])
def test_of_several_answers_one_has_loaded_the_prompt_for_all(fleet, reference, n):
    ids, more = prompt(6 * BLOCK + 8, f"{n} answers"), {"n": n, "temperature": 1, "seed": 5}
    p, d = fleet.prefill(0).ready(), fleet.decode(0).ready()
    with Proxy([p], [d]) as proxy:
        answer = proxy.completion(ids, **more)
    expected = all_tokens(reference.completion(ids, **more))
    equal(all_tokens(answer), expected)
    assert len(set(expected)) == n, "these seeds draw different answers"
    first = {}
    for step in d.steps():
        for name, computed in step.items():
            if answer["id"] in name:
                first.setdefault(name, computed)
    assert sorted(first.values()) == [1] + [8] * (n - 1), "one loads; the others find whole blocks in the prefix cache"


def all_tokens(answer):
    """Of each choice, in their order."""
    return [tuple(choice["token_ids"]) for choice in sorted(answer["choices"], key=lambda choice: choice["index"])]


def test_a_stream_is_the_same_text(proxy, reference):
    body = {"model": "tiny", "prompt": prompt(150, "stream"), "max_tokens": 12, "temperature": 0, "ignore_eos": True,
            "stream": True, "return_token_ids": True}
    ids = []
    with proxy.http.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                ids += json.loads(line[6:])["choices"][0]["token_ids"] or []
    equal(ids, tokens(reference.completion(body["prompt"], max_tokens=12)))


def test_a_chat_goes_through(proxy, reference):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "what moves key value cache blocks? " * 4}],
            "temperature": 0, "max_completion_tokens": 12, "ignore_eos": True}
    equal(*(http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
            for http in (proxy.http, reference.http)))


def test_a_client_that_leaves_while_its_answer_streams_costs_nothing(engines, proxy):
    body = {"model": "tiny", "prompt": prompt(300, "leaves"), "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with proxy.http.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_lines())
    for engine in engines[1]:
        eventually(lambda e=engine: e.holds()["requests"] == 0)


def test_a_client_that_leaves_between_prefill_and_decode_costs_nothing(engines, proxy):
    """The prompt takes six steps, and the client waits for none of them. What stays for a while is settled by the lease."""
    with httpx.Client(trust_env=False, timeout=0.05) as impatient, pytest.raises(httpx.TimeoutException):
        impatient.post(proxy.url + "/v1/completions",
                       json={"model": "tiny", "prompt": prompt(1500, "gone"), "max_tokens": 400, "ignore_eos": True})


def test_without_a_prefill_instance_decode_computes(engines, reference):
    class Gone:
        url = "http://127.0.0.1:9"

    ids = prompt(100, "alone")
    with Proxy([Gone], engines[1]) as proxy:
        answer = proxy.completion(ids)
    equal(tokens(answer), tokens(reference.completion(ids)))
