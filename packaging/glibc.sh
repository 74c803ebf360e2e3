#!/usr/bin/env bash
# Prints the newest version of glibc whose symbols the given programs and
# libraries use, "2.34": older systems cannot load them. Prints "none" when none
# of them uses glibc.
#
# usage: packaging/glibc.sh FILE...
set -euo pipefail

for file in "$@"; do
	objdump -p "$file"
done | sed -n 's/^.* GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -n 1 | grep . || echo none
