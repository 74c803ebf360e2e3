"""Starts daemons and vLLM instances for tests, asks them, and ends them."""
