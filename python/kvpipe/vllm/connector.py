"""The class that vLLM makes: one in the scheduler's process, one in each worker. It delegates, and lets no exception out: a
connector that raises from a hook takes the engine down, while one that gives up a load only has its prompt computed."""

from __future__ import annotations

from typing import Any

from . import compat
from .compat import Role, logger
from .guard import kept_in, nothing, passed_on
from .layout import Heads
from .meta import QUIET, Lost, Step
from .params import Settings
from .scheduler import Scheduler
from .session import instance, open_session
from .stats import Counts, Metrics
from .unsuited import unsuited
from .worker import Worker

compat.check_version()
compat.Metadata.register(Step)
compat.WorkerMetadata.register(Lost)


class KVPipeConnector(compat.Base, compat.SupportsHMA):  # type: ignore[misc]
    """Hands KV over through the node's kvpiped. See docs/vllm.md."""

    _cache_hit_source = compat.cache_hit_source()

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None, **_: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        settings = Settings.parse(transfer.kv_connector_extra_config or {})
        why = compat.refusal(vllm_config, kv_cache_config) or unsuited(settings, vllm_config, kv_cache_config)
        if why:
            raise ValueError(f"kvpipe: {why}")
        self._scheduler: Any = None  # one of the two
        self._worker: Any = None
        self._layerwise = settings.layerwise
        scheduling = role == Role.SCHEDULER
        if scheduling and transfer.kv_load_failure_policy != "recompute":
            logger.warning("kvpipe: kv_load_failure_policy is %r: a request whose KV cannot be loaded fails; "
                           "\"recompute\" computes its prompt instead", transfer.kv_load_failure_policy)
        parallel = vllm_config.parallel_config
        world = int(parallel.tensor_parallel_size), int(parallel.pipeline_parallel_size)
        rank = (0, 0) if scheduling else compat.rank()  # a scheduler has none
        self._node = open_session(settings, str(transfer.engine_id), instance(vllm_config, not scheduling),
                                  role="scheduler" if scheduling else "worker", rank=rank, world=world,
                                  cq_entries=8192 if scheduling else 4096)  # a scheduler asks after each request that waits
        if scheduling:
            self._scheduler = Scheduler(self._node, vllm_config, kv_cache_config, settings)
        else:
            self._worker = Worker(self._node, vllm_config, kv_cache_config, settings, Heads(rank[0], world[0]), rank[1])
            self._begin, self._saved = nothing(self._worker.begin), nothing(self._worker.saved)
            self._wait_layer, self._layer_saved = nothing(self._worker.wait_layer), nothing(self._worker.layer_saved)
        self._side = self._scheduler or self._worker

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: Any) -> bool:
        return bool(extra_config.get("layerwise", False))

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        return compat.TELLS_OF_SLEEP

    # ---- scheduler

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler.bind(kv_cache_manager)

    @nothing
    def set_xfer_handshake_metadata_pp_aware(self, metadata: Any) -> None:
        self._scheduler.places(metadata)

    @nothing
    def update_connector_output(self, connector_output: Any) -> None:
        received, bad, failed = connector_output.finished_recving, connector_output.invalid_block_ids, compat.failed_of(connector_output)
        if received or bad or failed:
            self._scheduler.ended(received, bad, failed)
        if connector_output.kv_connector_worker_meta is not None:
            self._scheduler.lost()

    @nothing
    def on_new_request(self, request: Any) -> None:
        self._scheduler.add(request)

    @kept_in(lambda: (0, False))
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        return self._scheduler.matched(request, num_computed_tokens)

    @nothing
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> Any:
        return compat.transfer_groups(self._kv_cache_config)

    @kept_in(lambda: Step(0))
    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return self._scheduler.step(scheduler_output)

    @kept_in(lambda: (False, None))
    def request_finished(self, request: Any, block_ids: Any) -> Any:
        return self._scheduler.finished(request, (block_ids,))

    @kept_in(lambda: (False, None))
    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        return self._scheduler.finished(request, block_ids)

    @kept_in(lambda: False)
    def has_pending_block_frees(self) -> Any:
        return self._scheduler.offers.give_back()

    @kept_in(lambda: False)
    def reset_cache(self) -> bool:
        self._scheduler.offers.reset()
        return True

    # ---- worker

    def get_handshake_metadata(self) -> Any:
        return self._worker.place

    def get_mem_pool_context(self) -> Any:
        return self._worker.memory.allocating()

    @passed_on
    def register_kv_caches(self, kv_caches: Any) -> None:
        self._worker.place.alone = alone = compat.is_alone(self)
        if self._layerwise and not alone and self._vllm_config.kv_transfer_config.kv_role != "kv_producer":
            raise ValueError("kvpipe: layerwise is not supported in MultiConnector where KV is loaded: the other connectors would store "
                             "what was computed behind a load that fails; leave it out")
        self._worker.memory.register(kv_caches)
        self._worker.place.form = self._worker.memory.form

    @passed_on
    def unregister_kv_caches(self) -> None:
        self._worker.memory.sleep()

    @nothing
    def restore_kv_caches(self) -> None:
        self._worker.memory.wake()

    # Most steps have nothing to tell the workers: these hooks then return at once.

    def handle_preemptions(self, kv_connector_metadata: Step) -> None:
        if kv_connector_metadata is not QUIET:
            self._begin(kv_connector_metadata)

    @nothing
    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        attention = getattr(forward_context, "attn_metadata", None)
        attention = more.get("attn_metadata") if attention is None else attention  # with full CUDA graphs
        # Model Runner V2 calls this after the forward pass, too: num_tokens then says how many tokens that had, if there was one.
        self._worker.begin(self._connector_metadata, attention is not None or "num_tokens" in more)
        self._worker.load()

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._layerwise:
            self._wait_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **_: Any) -> None:
        if self._layerwise:
            self._layer_saved(layer_name)

    def wait_for_save(self) -> None:
        if self._worker.offered:
            self._saved()

    @kept_in(compat.Results)
    def get_transfer_results(self, finished_req_ids: Any) -> Any:
        return self._worker.results(self._connector_metadata, finished_req_ids)

    @kept_in(set)
    def get_block_ids_with_load_errors(self) -> Any:
        return self._worker.failed_blocks()

    def build_connector_worker_meta(self) -> Any:
        return self._worker.lost

    # ---- metrics

    def get_kv_connector_stats(self) -> Any:
        return self._side.counts()

    @classmethod
    def build_kv_connector_stats(cls, data: Any = None) -> Any:
        return Counts(data)

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> Any:
        return Metrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        self._node.close()
