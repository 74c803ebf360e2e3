#!/usr/bin/env bash
# Runs make targets one after the other, keeps each one's output in
# build/test/log/TARGET.log, shows the end of it when it fails, and closes with
# one table. Ends with 1 when a part failed, ran over its time or could not run.
#
# usage: scripts/test.sh TARGET...        KVPIPE_PART_LIMIT: seconds for one part
set -u
cd "$(dirname "$0")/.."

make=${MAKE:-make}
limit=${KVPIPE_PART_LIMIT:-900}
logs=build/test/log
mkdir -p "$logs"

child=
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; exit 130' INT TERM

rows=() failed=()
for part in "$@"; do
	if [[ " ${failed[*]-} " == *' build '* ]]; then
		rows+=("$(printf '%-12s not run  %7s  build failed' "$part" '')")
		failed+=("$part")
		continue
	fi
	printf '== %s\n' "$part"
	log=$logs/$part.log
	began=$SECONDS
	timeout --kill-after=10 "$limit" $make "$part" >"$log" 2>&1 </dev/null &
	child=$!
	wait "$child"
	rc=$?
	child=
	took="$((SECONDS - began)) s"
	note=$(sed -n 's/^part passed: //p' "$log" | paste -sd + | sed 's|+|, |g')
	if [ "$rc" -ne 0 ]; then
		[ "$rc" -ne 124 ] || note="ran longer than $limit s"
		tail -n 80 "$log"
		failed+=("$part")
		word=FAILED
		note=${note:+$note; }"see $log"
	elif reason=$(grep -m 1 '^part skipped: ' "$log"); then
		word=skipped
		note=${reason#part skipped: }
	else
		word=ok
	fi
	rows+=("$(printf '%-12s %-7s  %7s  %s' "$part" "$word" "$took" "$note")")
	grep -h '^skip: ' "$log" | sort | uniq -c | sed 's/^/   /'
done

printf '\n%s\n' '------------ summary'
printf '%s\n' "${rows[@]}"
if [ ${#failed[@]} -gt 0 ]; then
	printf 'test: FAILED in %d s: %s\n' "$SECONDS" "${failed[*]}"
	exit 1
fi
printf 'test: ok in %d s\n' "$SECONDS"
