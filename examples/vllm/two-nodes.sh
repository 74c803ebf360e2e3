#!/usr/bin/env bash
# Two nodes on one machine, each with its daemon: the prefill instance on one, the decode instance on the other, the KV goes by TCP.
#
#   two-nodes.sh MODEL [ARGUMENT OF vllm serve]...
#
#   PORT=8000    of the proxy; the daemons are at PORT+50 and PORT+51, the instances at PORT+100 and PORT+200
#
# On two machines each runs its half: kvpiped with a configuration that names the other node (docs/operating.md), and
# vllm serve without KVPIPE_SOCKET.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
need() {
	local program
	for program; do
		command -v "$program" >/dev/null || { echo "$0: no $program in PATH: docs/vllm.md says where it comes from" >&2; exit 1; }
	done
}
need kvpiped kvpipectl vllm curl python3
model=$1
shift
: "${PORT:=8000}"
home=$(mktemp -d /tmp/kvp-XXXXXX)
trap 'trap - EXIT; kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$home"' EXIT
trap exit INT TERM

unless_one_ends() { # COMMAND: waits for it, or for the first end of what was started before, which ends everything
	local others first status=0
	others=$(jobs -p)
	"$@" &
	wait -n -p first $! $others || status=$? # not in the foreground: a signal is heard at once
	[ "$first" = $! ] || echo "$0: process $first has ended, its last words are above" >&2
	[ "$first" = $! ] && [ $status = 0 ] || exit 1
}

node() { # NAME PORT PEER=HOST:PORT
	kvpiped --dev --node "$1" --state-dir "$home/$1" --ca "$home/ca" --listen "127.0.0.1:$2" --peer "$3" &
}
node node-a $((PORT + 50)) "node-b=127.0.0.1:$((PORT + 51))"
node node-b $((PORT + 51)) "node-a=127.0.0.1:$((PORT + 50))"

serve() { # NODE PORT [ARGUMENT]...
	local node=$1 port=$2
	shift 2
	KVPIPE_SOCKET=$home/$node/kvpiped.sock vllm serve "$model" --host 127.0.0.1 --port "$port" \
		--kv-transfer-config "$(cat "$here/kvpipe.json")" "$@" &
}
serve node-a $((PORT + 100)) "$@"
serve node-b $((PORT + 200)) "$@"

for port in $((PORT + 100)) $((PORT + 200)); do
	unless_one_ends curl -sf --retry 600 --retry-delay 1 --retry-connrefused -o /dev/null "http://127.0.0.1:$port/health"
done
kvpipectl --admin "$home/node-b/admin.sock" explain node-a
echo "ready: http://127.0.0.1:$PORT/v1, model $model"
unless_one_ends python3 "$here/proxy.py" --port "$PORT" \
	--prefill "http://127.0.0.1:$((PORT + 100))" --decode "http://127.0.0.1:$((PORT + 200))"
