"""pytest -p upstream_plugin: vLLM's own connector tests, with KVPipeConnector where they would use their default.

There is one daemon. Each scheduler gets a worker's session, which they never make; each request that has KV elsewhere gets
our dict, and an offer of that KV by an engine that is never ready. Tests that name another connector keep it.
"""

import base64
import functools
import itertools
import pathlib
import tempfile

import places
import pytest

places.prepare()

TOKEN = b"0123456789abcdef"
BLOCK = 64
_open, _keys = [], itertools.count()


def _layout(node, blocks):
    import kvpipe
    region = node.alloc(blocks * BLOCK)
    node.set_layout([kvpipe.View(region, 0, num_blocks=blocks, block_stride=BLOCK, block_size=16, strides=(4, 4),
                                 content_bytes=4)], {"model": "none"})


def pytest_configure(config):
    import kvpipe
    from daemons import Daemon
    from tests.v1.kv_connector.unit import utils

    folder = tempfile.TemporaryDirectory(prefix="kvp-up-")
    home = pathlib.Path(folder.name)
    daemon = config._kvpiped = Daemon(home / "node", "node", home / "ca")
    config._producer = kvpipe.connect(daemon.socket, engine_id="producer")
    _layout(config._producer, 4096)
    config._folder = folder
    make_config, make_scheduler, make_request = utils.create_vllm_config, utils.create_scheduler, utils.create_request

    @functools.wraps(make_config)
    def create_vllm_config(*args, **kw):
        if not {"kv_connector", "kv_connector_module_path"} & set(kw):
            kw.update(kv_connector="KVPipeConnector", kv_connector_module_path="kvpipe.vllm.connector")
            kw.setdefault("kv_role", "kv_both")
            kw["kv_connector_extra_config"] = {"socket": daemon.socket, "kv_recompute_threshold": 0}
        return make_config(*args, **kw)

    @functools.wraps(make_scheduler)
    def create_scheduler(vllm_config, num_blocks=10000, **kw):
        if vllm_config.kv_transfer_config.kv_connector == "KVPipeConnector":
            _open.append(kvpipe.connect(daemon.socket, engine_id=vllm_config.kv_transfer_config.engine_id))
            _layout(_open[-1], num_blocks)
        scheduler = make_scheduler(vllm_config, num_blocks, **kw)
        if vllm_config.kv_transfer_config.kv_connector == "KVPipeConnector":
            _open.insert(0, _Connector(scheduler.connector))
        return scheduler

    @functools.wraps(make_request)
    def create_request(*args, **kw):
        request = make_request(*args, **kw)
        params = request.kv_transfer_params or {}
        if params.get("do_remote_prefill"):
            tokens = request.num_prompt_tokens
            offer = config._producer.offer(f"upstream/{next(_keys)}", list(range(-(-tokens // 16))), tokens=tokens, token=TOKEN,
                                           after=1 << 60)
            params["kvpipe"] = {"v": 1, "node": "node", "key": offer.key.decode(), "trace": None,
                                "token": base64.urlsafe_b64encode(TOKEN).rstrip(b"=").decode()}
        return request

    utils.create_vllm_config, utils.create_scheduler, utils.create_request = create_vllm_config, create_scheduler, create_request


class _Connector:
    def __init__(self, connector):
        self.close = connector.shutdown


@pytest.fixture(autouse=True)
def sessions_end():
    yield
    while _open:
        _open.pop(0).close()


def pytest_unconfigure(config):
    config._producer.close()
    config._kvpiped.stop()
    config._folder.cleanup()
