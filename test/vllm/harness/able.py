"""Which shapes and models this vLLM runs at all."""

import httpx
import pytest

from harness.handover import prompt


def runs(start, what, **options):
    """Skips where this vLLM, without any connector, does not run it on a CPU: then it ends. One that is slow to start fails."""
    plain = start("plain", **options)
    try:
        plain.ready().completion(prompt(20, "plain"))
    except (AssertionError, httpx.HTTPError):
        if not plain.ended():
            raise
        last = [line.strip() for line in plain.log if "Error" in line][-1:]
        plain.kill()
        pytest.skip(f"vLLM's CPU backend does not run {what}: {last}")
