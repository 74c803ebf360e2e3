#!/usr/bin/env bash
# What needs vLLM and no engine, of the scheduler's runs a fifth, with the Python
# tests that need torch; then hand-overs between real vLLM engines on this CPU:
# `make test-vllm-fast test-vllm` after `make deps-vllm`, which downloads 1 GB the
# first time.
set -u
cd "$(dirname "$0")/../.."

need=6 # GiB: two engines with torch in each of their processes, and a third beside them
have=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
if [ "$have" -lt $need ]; then
	echo "vLLM's engines need $need GiB of memory, $have GiB are available"
	exit 77
fi

# make hides the status of what it ran: the installer's 77 is asked for first.
make build || exit 1
test/vllm/install/install.sh build/vllm || exit
make deps-vllm || exit
make test-vllm-fast SEEDS=100 || exit
wrong=build/test/vllm-cache/v/kvpipe/wrong # cases that saw other tokens than they should have
rm -f "$wrong"
make test-vllm && exit
if [ -s "$wrong" ]; then
	echo "wrong tokens are no matter of cores, there is no other try: $(tr -d '\n' <"$wrong")"
	exit 1
fi
# Four engines that never sleep, their daemons and the tests share the cores: who had too little of them has another try, alone.
echo "again: what failed above"
make test-vllm-again
