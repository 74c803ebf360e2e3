"""A vLLM engine without a model: the real scheduler, the real hooks in their real order, our connector on both sides, and
text.py's model in place of the forward pass. It checks every KV element that a step reads, and every id that is reported."""

import collections
import select
import time
from unittest import mock

import numpy
import torch
from text import EOS, Text
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, ParallelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.forward_context import set_forward_context
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

import kvpipe

SLOTS = 16
LAYER = "model.layers.0.self_attn.attn"
init_none_hash(sha256)
_hasher = get_request_block_hasher(SLOTS, sha256)
_models = {}
# Of our connector's attributes: what each step replaces, and what is kept of each peer.
_KEPT = {"_ended", "_saved", "_peers", "_rates", "_heard", "_until"}


def _model(folder):
    """Reading a model's configuration takes vLLM a second."""
    if folder not in _models:
        _models[folder] = ModelConfig(model=str(folder), dtype="float32", seed=1, max_model_len=1024)
    return _models[folder]


def wait(filenos):
    """Sleeps until a daemon has something to say, for a moment at most."""
    poll = select.poll()
    for fd in filenos:
        poll.register(fd, select.POLLIN)
    poll.poll(50)


class Engine:
    """One engine at a daemon. ``batches``: how many steps may be in flight; 2 with asynchronous scheduling. ``window``: how many
    tokens attention looks at; None: all. ``drafts``: how many tokens the scheduler has room for that would be guessed; none are.

    ``answers``: request -> the tokens it got, ``ends``: request -> why it ended, ``params``: request -> its answer's
    kv_transfer_params. ``sent``, ``received``, ``failed``: what the worker reported of requests, each id once. ``awaited``: whose
    load a step waited for, and had. ``meanwhile``: what happens elsewhere while a step waits for a layer.
    """

    def __init__(self, model, socket, name, *, blocks=40, budget=64, seqs=4, batches=1, policy="recompute", window=None, drafts=0,
                 **extra):
        speculative = {"speculative_config": SpeculativeConfig(
            method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=2, target_model_config=_model(model),
            target_parallel_config=ParallelConfig())} if drafts else {}
        config = VllmConfig(
            model_config=_model(model),
            scheduler_config=SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=budget, max_model_len=1024,
                                             enable_chunked_prefill=True, is_encoder_decoder=False,
                                             async_scheduling=batches > 1),
            cache_config=CacheConfig(block_size=SLOTS, enable_prefix_caching=True),
            kv_transfer_config=KVTransferConfig(
                kv_connector="KVPipeConnector", kv_connector_module_path="kvpipe.vllm.connector", kv_role="kv_both",
                engine_id=name, kv_load_failure_policy=policy, kv_connector_extra_config={"socket": socket, **extra}),
            device_config=DeviceConfig("cpu"), **speculative)
        config.scheduler_config.async_scheduling = batches > 1  # which vLLM turns off on a CPU
        config.cache_config.num_gpu_blocks = blocks
        config.cache_config.kv_cache_layout = "LBNHC"
        page = SLOTS * 8
        shape = {"block_size": SLOTS, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        spec = SlidingWindowSpec(sliding_window=window, **shape) if window else FullAttentionSpec(**shape)
        cache = KVCacheConfig(
            num_blocks=blocks, kv_cache_groups=[KVCacheGroupSpec([LAYER], spec)],
            kv_cache_tensors=[KVCacheTensor(size=blocks * page, layers=[LAYER], layer_stride=blocks * page, block_stride=page)])
        self.name, self._config, self._batches, self._window = name, config, batches, window
        with mock.patch("kvpipe.vllm.compat.rank", lambda: (0, 0)):
            self._build(config, cache, blocks)
        self._queue = collections.deque()
        self._texts, self._tables, self._known = {}, {}, {}
        self._wrong = {}  # request -> how it saw, in this step, what is not its KV
        self._handed = set()  # ids that the worker was told have finished
        self.answers, self.ends, self.params = collections.defaultdict(list), {}, {}
        self.sent, self.received, self.failed, self.awaited = set(), set(), set(), set()
        self.meanwhile = lambda: None
        self._at_first = self._held()

    def _build(self, config, cache, blocks):
        page = SLOTS * 8
        self.worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
        with self.worker.get_mem_pool_context():
            memory = torch.zeros(blocks * page, dtype=torch.int8)
        with mock.patch.object(kv_transfer_state, "_KV_CONNECTOR_AGENT", self.worker):
            self.worker.register_kv_caches({LAYER: memory.view(torch.float32).view(blocks, 1, SLOTS, 2)})
        self._kv = memory.numpy().view(numpy.uint64).reshape(blocks, SLOTS)
        self.scheduler = (AsyncScheduler if self._batches > 1 else Scheduler)(
            vllm_config=config, kv_cache_config=cache, log_stats=True, block_size=SLOTS,
            structured_output_manager=StructuredOutputManager(config))
        place = self.worker.get_handshake_metadata()
        if place is not None:
            self.scheduler.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): place})

    # ---- requests

    def add(self, request_id, prompt, most, params=None):
        sampling = SamplingParams(max_tokens=most, temperature=0)
        sampling.update_from_generation_config({}, EOS)
        request = Request(request_id=request_id, prompt_token_ids=list(prompt), sampling_params=sampling, pooling_params=None,
                          mm_features=None, block_hasher=_hasher)
        request.kv_transfer_params = params
        self._texts[request_id] = Text(prompt)
        self.scheduler.add_request(request)

    def abort(self, request_id):
        if self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED):
            self.ends.setdefault(request_id, "abort")

    def preempt(self):
        """All that run lose their blocks, and are computed again; what was computed is not found again."""
        try:
            self.scheduler.reset_prefix_cache(reset_running_requests=True)
        except RuntimeError as error:
            assert "waiting for remote KV transfer" in str(error)  # their blocks stay, as they must

    def _attributes(self):
        """(class, name, value) of everything that the connector has, on either side."""
        todo = [self.scheduler.connector, self.worker]
        while todo:
            side = todo.pop()
            for name, value in vars(side).items():
                yield type(side).__name__, name, value
                if type(value).__module__.startswith("kvpipe.vllm.") and hasattr(value, "__dict__"):
                    todo.append(value)

    def _held(self):
        """How much it remembers: the sizes of all its containers, those of several objects of a class together."""
        held = collections.Counter()
        for owner, name, value in self._attributes():
            if isinstance(value, (dict, list, set, collections.deque)) and name not in _KEPT:
                held[owner, name] += len(value)
        return held

    def settle(self):
        """An engine without requests takes no steps; its connector hears of the last ends in the next one."""
        until = time.monotonic() + 60
        while self._held() != self._at_first and time.monotonic() < until:
            wait(self.filenos())
            output = self.scheduler.schedule()
            self._update(output, self._execute(output))

    def assert_empty(self):
        """Nothing is left of any request: in the scheduler, in its block pool, in the connector."""
        s = self.scheduler
        left = {name: len(getattr(s, name)) for name in (
            "requests", "waiting", "kv_holding_waiting", "deferred_waiting", "running", "finished_req_ids",
            "finished_recving_kv_req_ids", "failed_recving_kv_req_ids", "_inflight_prefills", "deferred_frees")}
        pool = s.kv_cache_manager.block_pool
        left["tables"] = len(s.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks)
        left["blocks"] = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        left["references"] = sum(block.ref_cnt for block in pool.blocks if not block.is_null)
        now = self._held()
        left.update({name: n - self._at_first.get(name, 0) for name, n in now.items()})
        assert not any(left.values()), f"{self.name} keeps {({name: n for name, n in left.items() if n})}"

    def filenos(self):
        """Readable when a completion is there that the next step collects."""
        return {value.fileno() for _, _, value in self._attributes() if isinstance(value, kvpipe.Node)}

    @property
    def busy(self):
        return bool(self._queue) or self.scheduler.has_requests()

    # ---- steps, as EngineCore takes them

    def step(self):
        """One turn. True when tokens were computed."""
        computed = False
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            computed = output.total_num_scheduled_tokens > 0
            self._queue.append((output, self._execute(output)))
            if len(self._queue) < self._batches and (computed or self.scheduler.has_requests()):
                return computed
        if self._queue:
            self._update(*self._queue.popleft())
        return computed

    def _update(self, output, result):
        for core in self.scheduler.update_from_output(output, result).values():
            for one in core.outputs:
                self.answers[one.request_id] += one.new_token_ids
                if one.finish_reason is not None:
                    self.ends.setdefault(one.request_id, str(one.finish_reason))
                    self.params[one.request_id] = one.kv_transfer_params

    def _execute(self, output):
        kv_transfer_state._KV_CONNECTOR_AGENT = self.worker
        try:
            self.worker.handle_preemptions(output.kv_connector_metadata)
            self._handed |= output.finished_req_ids
            if not output.total_num_scheduled_tokens:
                result = KVConnectorModelRunnerMixin.kv_connector_no_forward(output, self._config)
            else:
                with set_forward_context({}, self._config), KVConnectorModelRunnerMixin._get_kv_connector_output(output) as ended:
                    ids, sampled = self._forward(output)
                result = ModelRunnerOutput(req_ids=ids, req_id_to_index={r: i for i, r in enumerate(ids)},
                                           sampled_token_ids=sampled, kv_connector_output=ended)
        finally:
            kv_transfer_state._KV_CONNECTOR_AGENT = None
        self._look(result.kv_connector_output)
        self._waited(output, result.kv_connector_output)
        return result

    def _look(self, ended):
        """Every id once; sends only of requests that the worker knows have finished."""
        if ended is None:
            return
        for seen, now in ((self.sent, ended.finished_sending), (self.received, ended.finished_recving),
                          (self.failed, ended.failed_recving)):
            assert not seen & set(now or ()), f"{self.name}: reported again: {seen & set(now)}"
            seen |= set(now or ())
        assert set(ended.finished_sending or ()) <= self._handed, "sent, before the worker heard that it had finished"
        assert set(ended.failed_recving or ()) <= set(ended.finished_recving or ()), "failed, but not received"
        bad = ended.invalid_block_ids
        self.failed |= {r for r in ended.finished_recving or () if bad & set(self.scheduler.kv_cache_manager.get_block_ids(r)[0])}

    def _waited(self, output, ended):
        """Of what a step computed on wrong KV nobody may hear: its blocks are bad, by the worker's word."""
        bad = ended.invalid_block_ids if ended is not None else set()
        for request_id, what in self._wrong.items():
            assert not bad.isdisjoint(self._tables[request_id]), what
        self._wrong.clear()
        self.awaited |= {load.request for load in output.kv_connector_metadata.loads if bad.isdisjoint(load.blocks[0])}

    # ---- the forward pass

    def _forward(self, output):
        self._batch(output)
        if any(load.layered for load in output.kv_connector_metadata.loads):
            self.meanwhile()
        self.worker.wait_for_layer_load(LAYER)
        ids, sampled = [], []
        computed = {r.req_id: r.num_computed_tokens for r in output.scheduled_new_reqs}
        computed.update(zip(output.scheduled_cached_reqs.req_ids, output.scheduled_cached_reqs.num_computed_tokens))
        for request_id, count in output.num_scheduled_tokens.items():
            start, stop = computed[request_id], computed[request_id] + count
            self._read(request_id, start)
            self._write(request_id, start, stop)
            ids.append(request_id)
            if stop < self._known[request_id]:
                sampled.append([])
            elif request_id in self._wrong:
                sampled.append([EOS])
            else:
                sampled.append([self._texts[request_id].token(stop)])
                self._known[request_id] = stop + 1
        self.worker.save_kv_layer(LAYER, None, None)
        return ids, sampled

    def _batch(self, output):
        """Block tables, as a model runner keeps them."""
        for block in output.new_block_ids_to_zero or ():
            self._kv[block] = 0
        for new in output.scheduled_new_reqs:
            self._tables[new.req_id] = list(new.block_ids[0])
            self._known[new.req_id] = len(new.prompt_token_ids)
        cached = output.scheduled_cached_reqs
        for request_id, blocks, outputs in zip(cached.req_ids, cached.new_block_ids, cached.num_output_tokens):
            if request_id in cached.resumed_req_ids:
                self._tables[request_id] = []
                self._known[request_id] = len(self._texts[request_id].prompt) + outputs
            if blocks is not None:
                self._tables[request_id] += blocks[0]

    def _read(self, request_id, stop):
        """Attention looks at all positions before, or at those in its window."""
        start = max(stop + 1 - self._window, 0) if self._window else 0
        want = self._texts[request_id].kv(start, stop)
        table = self._tables[request_id][:-(-stop // SLOTS)]
        have = self._kv[table].reshape(-1)[start:stop]
        if not numpy.array_equal(have, want):
            first = start + int(numpy.argmax(have != want))
            self._wrong[request_id] = (f"{self.name}: {request_id}: wrong KV at position {first} of {stop}, block "
                                       f"{table[first // SLOTS]}, reported received: {request_id in self.received}")

    def _write(self, request_id, start, stop):
        kv, table = self._texts[request_id].kv(start, stop), self._tables[request_id]
        positions = numpy.arange(start, stop)
        self._kv[numpy.take(table, positions // SLOTS), positions % SLOTS] = kv

    def close(self):
        self.scheduler.connector.shutdown()
        self.worker.shutdown()
