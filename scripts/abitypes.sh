#!/usr/bin/env bash
# Compares the functions that a library exports, and the types that they take,
# with the committed description: what programs were compiled against must not
# change under them. New functions are fine here (abi.sh lists names); a changed
# one or a changed struct is not. When it is wanted: UPDATE=1 make abi
#
# usage: scripts/abitypes.sh LIBRARY DESCRIPTION
set -eu
library=$1 description=$2

[ -e "$library" ] || { echo "abi: $library is not built"; exit 1; }
describe() {
	abidw --exported-interfaces-only --headers-dir include --drop-private-types --no-corpus-path --no-comp-dir-path --no-show-locs \
		--out-file "$1" "$library"
}
if [ "${UPDATE:-}" = 1 ]; then
	describe "$description"
	exit 0
fi
# Descriptions are compared, not libraries: abidiff takes types whose sources it
# sees on one side only for private ones, and then says nothing of them.
now=$(mktemp)
trap 'rm -f "$now"' EXIT
describe "$now"
if ! abidiff --harmless --no-added-syms --no-architecture "$description" "$now"; then
	echo "abi: functions or types differ from $description; if that is wanted: UPDATE=1 make abi" >&2
	exit 1
fi
echo "part passed: types as in $description"
