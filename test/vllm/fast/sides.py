"""The scheduler's side over a session of fakes.py, requests that come to it, and what an engine does with both."""

import base64
import types

from fakes import cache
from vllm.v1.request import RequestStatus

from kvpipe.vllm.meta import Place
from kvpipe.vllm.params import Settings
from kvpipe.vllm.scheduler import Scheduler

SLOTS = 16
BLOCK = 1 << 16  # bytes
TOKEN = b"0123456789abcdef"


def scheduler(node, tp=1, policy="recompute", flight=1, specs=(), nodes=1, caching=True, role="kv_both", v2=False, device="other", kv=None,
              **settings):
    """One of an engine. device: on "other" ones attention has tokens where they are in blocks. kv: its KV cache, if specs do not say all."""
    config = types.SimpleNamespace(
        device_config=types.SimpleNamespace(device_type=device),
        kv_transfer_config=types.SimpleNamespace(engine_id="e", kv_role=role, kv_load_failure_policy=policy),
        parallel_config=types.SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=1, nnodes_within_dp=nodes),
        scheduler_config=types.SimpleNamespace(async_scheduling=flight > 1),
        cache_config=types.SimpleNamespace(enable_prefix_caching=caching), use_v2_model_runner=v2)
    return Scheduler(node, config, kv or cache(*specs, block=BLOCK), Settings(**{"kv_recompute_threshold": 1, "log_peers": False, **settings}))


def placed(side, *nodes):
    side.places({(0, tp): Place(name) for tp, name in enumerate(nodes)})
    return side


def request(tokens, name="r", **more):
    ours = {"v": 1, "node": "other", "key": "k", "token": base64.urlsafe_b64encode(TOKEN).decode(), **more.pop("ours", {})}
    return types.SimpleNamespace(
        request_id=name, num_prompt_tokens=tokens, num_tokens=tokens, all_token_ids=list(range(tokens)), num_preemptions=0, status=None,
        num_computed_tokens=0, prefill_stats=None, lora_request=None, cache_salt=None, prompt_embeds=None, mm_features=[], trace_headers=None,
        kv_transfer_params={"do_remote_prefill": True, "kvpipe": ours, **more})


def early(tokens, name="r", key=None, **more):
    """A request of which a proxy has sent each engine its half at the same time."""
    r = request(tokens, name, transfer_id=key or f"t {name}", **more)
    del r.kv_transfer_params["kvpipe"]["key"]
    return r


def blocks(tokens):
    return types.SimpleNamespace(get_block_ids=lambda: (list(range(1, 1 + -(-tokens // SLOTS))),))


def step(side):
    return side.step(types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=None))


def begun(side, r, computed=0, count=None):
    """The request is asked about and gets blocks, for all that can be loaded or less."""
    side.add(r)
    most, _ = side.matched(r, computed)
    side.allocated(r, blocks(r.num_prompt_tokens), most if count is None else count)
    return step(side)


def finished(side, r):
    r.status = RequestStatus.FINISHED_ABORTED
    return side.finished(r, ([1, 2, 3, 4, 5, 6, 7],))
