"""vLLM's connector: ``--kv-transfer-config '{"kv_connector":"KVPipeConnector","kv_role":"kv_both",...}'``."""

import logging


def register() -> None:
    """The entry point of ``vllm.general_plugins``: makes KVPipeConnector known by its name. vLLM calls it in all its processes, whether
    or not they use it. So with a vLLM that does not fit they go on, and the log says why before vLLM fails to find the name."""
    try:
        from . import compat

        compat.register("KVPipeConnector", "kvpipe.vllm.connector")
    except ImportError as error:
        logging.getLogger("vllm.kvpipe").warning("%s; until then there is no KVPipeConnector", error)
