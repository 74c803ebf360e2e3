#!/usr/bin/env bash
# Runs make targets, three at a time since most of them wait more than they
# compute, and `build` alone since the others stand on it. Keeps each one's
# output in build/test/log/TARGET.log, shows the end of it when it fails, and
# closes with one table. Ends with 1 when a part failed, ran over its time or
# could not run.
#
# usage: scripts/test.sh TARGET...        KVPIPE_PART_LIMIT: seconds for one part
#                                         KVPIPE_PARTS: how many at a time
set -u
cd "$(dirname "$0")/.."

make=${MAKE:-make}
limit=${KVPIPE_PART_LIMIT:-1200}
lanes=${KVPIPE_PARTS:-3}
logs=build/test/log
mkdir -p "$logs"

declare -A part=() began=() # by process
declare -A row=()           # by part
failed=()
trap 'kill "${!part[@]}" "${!-}" 2>/dev/null; exit 130' INT TERM HUP

start() {
	printf '== %s\n' "$1"
	timeout --kill-after=10 "$limit" $make "$1" >"$logs/$1.log" 2>&1 </dev/null &
	part[$!]=$1
	began[$!]=$SECONDS
}

# settle: waits for one part to end, and says how.
settle() {
	local pid rc word note reason
	wait -n -p pid "${!part[@]}"
	rc=$?
	local name=${part[$pid]}
	local log=$logs/$name.log took="$((SECONDS - began[$pid])) s"
	unset "part[$pid]"
	note=$(sed -n 's/^part passed: //p' "$log" | paste -sd + | sed 's|+|, |g')
	if [ "$rc" -ne 0 ]; then
		case $rc in
		124) note="ran longer than $limit s" ;;
		137) note="ran longer than $limit s, or was killed" ;;
		esac
		tail -n 80 "$log"
		failed+=("$name")
		word=FAILED
		note=${note:+$note; }"see $log"
	elif reason=$(grep -m 1 '^part skipped: ' "$log"); then
		word=skipped
		note=${reason#part skipped: }
	else
		word=ok
	fi
	row[$name]=$(printf '%-14s %-7s  %7s  %s' "$name" "$word" "$took" "$note")
	echo "${row[$name]}"
	grep -h '^skip: ' "$log" | sort | uniq -c | sed 's/^/   /'
}

for name in "$@"; do
	while [ "${#part[@]}" -ge "$lanes" ]; do settle; done
	if [[ " ${failed[*]-} " == *' build '* ]]; then
		row[$name]=$(printf '%-14s not run  %7s  build failed' "$name" '')
		failed+=("$name")
		continue
	fi
	start "$name"
	[ "$name" != build ] || settle
done
while [ "${#part[@]}" -gt 0 ]; do settle; done

printf '\n%s\n' '------------ summary'
for name in "$@"; do echo "${row[$name]}"; done
if [ ${#failed[@]} -gt 0 ]; then
	printf 'test: FAILED in %d s: %s\n' "$SECONDS" "${failed[*]}"
	exit 1
fi
printf 'test: ok in %d s\n' "$SECONDS"
