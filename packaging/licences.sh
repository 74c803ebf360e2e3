#!/usr/bin/env bash
# Prints the licences of what is linked into a Go program, module by module, as
# they ask to be handed on with it.
#
# usage: packaging/licences.sh PROGRAM
set -euo pipefail
program=$1
go=${GO:-go}

cat <<-END
	This program contains the following modules, under the licences below.
END
show() { # NAME FOLDER
	local file found=
	for file in "$2"/LICENSE* "$2"/COPYING* "$2"/NOTICE*; do
		[ -f "$file" ] || continue
		found=1
		printf '\n%s\n%s: %s\n\n' '----------------------------------------' "$1" "${file##*/}"
		cat "$file"
	done
	[ -n "$found" ] || { echo "licences: $1 has none in $2" >&2; exit 1; }
}
show "The Go standard library" "$("$go" env GOROOT)"
"$go" version -m "$program" | awk '$1 == "dep" { print $2, $3 }' | while read -r path version; do
	show "$path $version" "$("$go" list -m -f '{{.Dir}}' "$path")"
done
