"""What tests see of a worker, and do to it, from inside: which tokens it computed, what its KV blocks hold.

`install` is called in a server before vLLM starts; `Probe` is its worker extension, whose methods the harness calls by
vLLM's own /collective_rpc. One more method, `probe_engine`, is answered by the engine core.
"""

import functools
import hashlib

steps = []  # in each: request id -> tokens computed


def install():
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    execute = CPUModelRunner.execute_model

    def execute_model(self, scheduler_output, *args, **kwargs):
        if scheduler_output.total_num_scheduled_tokens:
            steps.append({name: int(n) for name, n in scheduler_output.num_scheduled_tokens.items()})
        return execute(self, scheduler_output, *args, **kwargs)

    CPUModelRunner.execute_model = execute_model

    from vllm.v1.engine.core import EngineCore

    ask_workers = EngineCore.collective_rpc

    @functools.wraps(ask_workers)  # vLLM looks at the signature
    def collective_rpc(self, method, *args, **kwargs):
        return [engine(self)] if method == "probe_engine" else ask_workers(self, method, *args, **kwargs)

    EngineCore.collective_rpc = collective_rpc


def engine(core):
    """What the scheduler holds: requests of any state, and blocks of its pool that are not free."""
    scheduler = core.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    return {"requests": len(scheduler.requests), "blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
            "running": len(scheduler.running), "waiting": len(scheduler.waiting)}


class Probe:
    """Mixed into vLLM's worker by --worker-extension-cls."""

    def _caches(self):
        """The KV tensors, one for each layer; the first dimension is the block."""
        return [cache for cache in self.model_runner.kv_caches if hasattr(cache, "data_ptr")]

    def probe_steps(self):
        """All steps so far, as {request id: tokens computed}."""
        return list(steps)

    def probe_corrupt(self, block):
        """Changes what a block holds, in every layer."""
        for cache in self._caches():
            cache[block].neg_().add_(0.5)
        return len(self._caches())

    def probe_digest(self, blocks):
        """Of the bytes of these blocks, layer by layer."""
        digest = hashlib.sha256()
        for cache in self._caches():
            for block in blocks:
                digest.update(cache[block].contiguous().numpy().tobytes())
        return digest.hexdigest()
