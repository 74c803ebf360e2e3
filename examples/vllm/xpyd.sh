#!/usr/bin/env bash
# A daemon, prefill and decode instances of one model and a proxy in front of them, on this machine:
#
#   xpyd.sh MODEL [ARGUMENT OF vllm serve]...
#
#   PREFILL=2 DECODE=2   how many instances of each kind
#   PORT=8000            of the proxy; prefill instances are at PORT+100 and on, decode instances at PORT+200 and on
#   KV=kvpipe.json       the --kv-transfer-config of all of them
#
# kvpiped, kvpipectl and vllm have to be in PATH. A daemon that runs already is used. Ctrl-C ends everything, and so does the
# end of one of them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
need() {
	local program
	for program; do
		command -v "$program" >/dev/null || { echo "$0: no $program in PATH: docs/vllm.md says where it comes from" >&2; exit 1; }
	done
}
need kvpipectl vllm curl python3
model=$1
shift
: "${PREFILL:=2}" "${DECODE:=2}" "${PORT:=8000}" "${KV:=$here/kvpipe.json}"

trap 'trap - EXIT; kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap exit INT TERM

unless_one_ends() { # COMMAND: waits for it, or for the first end of what was started before, which ends everything
	local others first status=0
	others=$(jobs -p)
	"$@" &
	wait -n -p first $! $others || status=$? # not in the foreground: a signal is heard at once
	[ "$first" = $! ] || echo "$0: process $first has ended, its last words are above" >&2
	[ "$first" = $! ] && [ $status = 0 ] || exit 1
}

kvpipectl status >/dev/null 2>&1 || { need kvpiped; kvpiped --dev & }

urls=()
instances() { # prefill|decode COUNT FIRST-PORT [ARGUMENT]...
	local kind=$1 count=$2 first=$3 port
	shift 3
	for ((port = first; port < first + count; port++)); do
		vllm serve "$model" --host 127.0.0.1 --port "$port" --kv-transfer-config "$(cat "$KV")" "$@" &
		urls+=("--$kind" "http://127.0.0.1:$port")
	done
}
instances prefill "$PREFILL" $((PORT + 100)) "$@"
instances decode "$DECODE" $((PORT + 200)) "$@"

for ((i = 1; i < ${#urls[@]}; i += 2)); do
	unless_one_ends curl -sf --retry 600 --retry-delay 1 --retry-connrefused -o /dev/null "${urls[i]}/health"
done
echo "ready: http://127.0.0.1:$PORT/v1, model $model"
unless_one_ends python3 "$here/proxy.py" --port "$PORT" "${urls[@]}"
