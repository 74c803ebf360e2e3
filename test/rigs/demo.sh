#!/usr/bin/env bash
# The demo as the README has it: `make demo` ends with "demo: ok", build/demo.json
# holds what the table shows, and neither processes nor files stay behind.
set -u
cd "$(dirname "$0")/../.."

need=5 # GiB: four pools of 1 GiB and some, and what surrounds them
have=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
if [ "$have" -lt $need ]; then
	echo "the demo needs $need GiB of memory, $have GiB are available"
	exit 77
fi

TMPDIR=$(mktemp -d /tmp/kvrig.XXXXXX)
export TMPDIR
out=$TMPDIR.log
trap 'rm -rf "$TMPDIR" "$out"' EXIT

fail() {
	cat "$out"
	tail -n 40 "$TMPDIR"/kvpipe-demo-*/*/log
	echo "rig: $*"
	exit 1
}

rm -f build/demo.json
make demo >"$out" 2>&1 || fail "make demo ended with $?"
[ "$(tail -n 1 "$out")" = 'demo: ok' ] || fail 'the last line is not "demo: ok"'
for process in /proc/[0-9]*; do
	# Daemons and engines alike were given TMPDIR; who has ended has no environment.
	! grep -qzxF "TMPDIR=$TMPDIR" "$process/environ" 2>/dev/null ||
		fail "still running: $(tr '\0' ' ' 2>/dev/null <"$process/cmdline")"
done
left=$(find "$TMPDIR" -mindepth 1 -maxdepth 1)
[ -z "$left" ] || fail "left behind: $left"
build/venv/bin/python -B test/rigs/demo_report.py build/demo.json "$out" || fail 'the report is not as it must be'
cat "$out"
