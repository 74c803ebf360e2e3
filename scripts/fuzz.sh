#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 60s), one after the
# other: go test fuzzes one target of one package at a time. Goes on after a
# finding, and ends with 1 when there was one; its input lies in testdata/fuzz.
set -u
cd "$(dirname "$0")/.."

go=${GO:-go}
time=${FUZZTIME:-60s}
count=0 found=()
for package in $("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do
	for target in $("$go" test -list '^Fuzz' "$package" | grep '^Fuzz'); do
		echo "== $package $target"
		count=$((count + 1))
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" || found+=("$target")
	done
done
echo "fuzz: $count targets for $time each, ${#found[@]} failed ${found[*]-}"
[ ${#found[@]} -eq 0 ]
