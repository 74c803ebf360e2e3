"""Writes down when things happen to a request inside a vLLM server: what each process calls, and the connector's hooks.

`install` is called in a server before vLLM starts. One line of JSON an event, appended to the file KVPIPE_TRACE: wall
clock in nanoseconds, which the daemon's log has as well, and words. Steps that have nothing to do are left out.
"""
import functools
import json
import os
import time


def _tell(what, **more):
    line = json.dumps({"at": time.time_ns(), "who": os.environ["KVPIPE_TRACE_WHO"], "what": what, **more}) + "\n"
    os.write(_tell.file, line.encode())


def _around(owner, name, before=None, after=None):
    """Has owner.name tell a text before it runs and one after; either may be a function of (arguments, result)."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def call(*args, **kwargs):
        if before and before(args, kwargs):
            _tell(before(args, kwargs))
        result = method(*args, **kwargs)
        if after and after(args, result):
            _tell(after(args, result))
        return result

    setattr(owner, name, call)


def _recving(results):
    return bool(results.finished_recving or results.finished_sending or results.failed_recving)


def _loads(metadata):
    """What workers take by themselves in a step."""
    return getattr(metadata, "loads", None)


def _watch(connector, role):
    if role == "SCHEDULER":
        _around(connector, "on_new_request", lambda a, k: "engine core: the request is added; the daemon may know of it")
        _around(connector, "update_state_after_alloc",
                lambda a, k: "scheduler: blocks are allocated" if a[2] else None,
                lambda a, r: "scheduler: the load is told of, to the daemon or to the workers" if a[2] else None)
        _around(connector, "request_finished_all_groups", lambda a, k: "scheduler: the request is finished",
                lambda a, r: "scheduler: its blocks are offered" if r[0] else None)
        _around(connector, "update_connector_output",
                lambda a, k: "scheduler: hears that the KV is there" if a[0].finished_recving else None)
    else:
        _around(connector, "handle_preemptions",
                after=lambda a, r: "worker: the step with the take begins" if _loads(a[0]) or getattr(a[0], "recvs", None) else None)
        _around(connector, "start_load_kv", lambda a, k: "worker: waits for the KV" if _loads(connector._connector_metadata) else None,
                lambda a, r: "worker: the KV is there" if _loads(connector._connector_metadata) else None)
        _around(connector, "get_transfer_results",
                after=lambda a, r: "worker: reports the end of a hand-over" if _recving(r) else None)
    return connector


def install():
    path = os.environ.get("KVPIPE_TRACE")
    if not path:
        return
    _tell.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    make = KVConnectorFactory.create_connector

    def create_connector(config, role, kv_cache_config):
        return _watch(make(config, role, kv_cache_config), role.name)

    KVConnectorFactory.create_connector = create_connector
    _around(AsyncLLM, "generate", lambda a, k: "API server: has the request")

    def tokens(args):
        return args[1].total_num_scheduled_tokens

    _around(CPUModelRunner, "execute_model", lambda a, k: f"worker: computes {tokens(a)} tokens" if tokens(a) else None,
            lambda a, r: "worker: has computed" if tokens(a) else None)
