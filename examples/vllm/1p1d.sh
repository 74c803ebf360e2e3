#!/usr/bin/env bash
# A daemon, a prefill and a decode instance of one model and a proxy in front of them, on this machine:
#
#   1p1d.sh MODEL [ARGUMENT OF vllm serve]...
#
# PORT, KV and everything else as in xpyd.sh.
set -eu
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
PREFILL=1 DECODE=1 exec "$(dirname "$0")/xpyd.sh" "$@"
