#!/usr/bin/env bash
# One prefill and one decode instance: 1p1d.sh MODEL [ARGUMENT OF vllm serve]...; everything else as in xpyd.sh.
PREFILL=1 DECODE=1 exec "$(dirname "$0")/xpyd.sh" "$@"
