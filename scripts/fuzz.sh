#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 60s), one after the
# other: go test fuzzes one target of one package at a time. Goes on after a
# finding, and ends with 1 when there was one, whose input lies in testdata/fuzz,
# or when there was nothing to fuzz.
set -u
cd "$(dirname "$0")/.."

go=${GO:-go}
time=${FUZZTIME:-60s}
count=0 found=()
packages=$("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...) || exit
for package in $packages; do
	targets=$("$go" test -list '^Fuzz' "$package") || { echo "$targets"; found+=("$package"); continue; }
	for target in $(grep '^Fuzz' <<<"$targets"); do
		echo "== $package $target"
		count=$((count + 1))
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" || found+=("$target")
	done
done
echo "fuzz: $count targets for $time each, ${#found[@]} failed ${found[*]-}"
[ $count -gt 0 ] && [ ${#found[@]} -eq 0 ]
