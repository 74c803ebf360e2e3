"""vLLM's connector: ``--kv-transfer-config '{"kv_connector":"KVPipeConnector","kv_role":"kv_both",...}'``."""


def register() -> None:
    """The entry point of ``vllm.general_plugins``: makes KVPipeConnector known by its name."""
    from . import compat

    compat.register("KVPipeConnector", "kvpipe.vllm.connector")
