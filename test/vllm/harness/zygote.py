"""Forks vLLM API servers from one process that has imported everything, which saves each of them half a minute.

Run as a program with a socket as its standard input. A request is a JSON object with "argv", "env" and "install", the module
that prepares a server, and a descriptor for the server's output; the answer is its pid. A server leads a process group,
which ends with whoever kills the group; all of it ends when the socket is closed.
"""

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1


def preload():
    """Imports what servers, engine cores and workers need; starts no thread, or a fork would be without it."""
    import torch  # noqa: F401
    import transformers.models.auto  # noqa: F401
    import vllm.entrypoints.launchers.api_server.entry  # noqa: F401
    import vllm.entrypoints.launchers.cli_args  # noqa: F401
    import vllm.model_executor.models.deepseek_v2  # noqa: F401
    import vllm.model_executor.models.gemma3  # noqa: F401
    import vllm.model_executor.models.llama  # noqa: F401
    import vllm.v1.engine.core  # noqa: F401
    import vllm.v1.worker.cpu_model_runner  # noqa: F401
    import vllm.v1.worker.cpu_worker  # noqa: F401


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork_instead_of_spawn():
    """vLLM asks for spawned processes on a CPU; forked ones have the imports already."""
    context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: context("fork" if method == "spawn" else method)


def serve(argv):
    """What `vllm serve` does."""
    import uvloop
    from vllm.entrypoints.launchers.api_server.entry import run_server
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = make_arg_parser(FlexibleArgumentParser()).parse_args(argv)
    validate_parsed_serve_args(args)
    uvloop.run(run_server(args))


def child(request, output):
    os.setsid()
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # engine cores and workers too
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update(request["env"])
    sys.argv = ["vllm", "serve", *request["argv"]]
    fork_instead_of_spawn()
    importlib.import_module(request["install"]).install()
    serve(request["argv"])


def main():
    die_with_parent()
    control = socket.socket(fileno=0)
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the servers here
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 1)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            os.open(os.devnull, os.O_RDONLY)  # standard input again
            try:
                child(json.loads(message), descriptors[0])
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)
        os.close(descriptors[0])
        control.send(str(pid).encode())


if __name__ == "__main__":
    main()
