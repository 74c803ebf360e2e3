#!/usr/bin/env bash
# Compares what a library exports with the committed list, one name@VERSION a
# line. A name that is gone or moved to another version breaks programs that
# exist; a new one must be added to the list on purpose: UPDATE=1 make abi
set -eu
library=$1 list=$2

[ -e "$library" ] || { echo "abi: $library is not built"; exit 1; }
exports() {
	nm -D --defined-only --with-symbol-versions "$library" |
		awk '$2 != "A" { sub(/@@/, "@", $3); print $3 }' | LC_ALL=C sort
}

if [ "${UPDATE:-}" = 1 ]; then
	exports >"$list"
	exit 0
fi
if ! diff -u --label "$list" --label "$library" "$list" <(exports); then
	echo "abi: the exported symbols differ from $list; if that is wanted: UPDATE=1 make abi" >&2
	exit 1
fi
echo "part passed: $(wc -l <"$list") symbols as listed in $list"
