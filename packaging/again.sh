#!/usr/bin/env bash
# Makes the packages of this tree a second time and compares: in another folder,
# with compiler caches, a time zone, a language and file modes of its own. Only
# the tools are the same ones.
#
# usage: packaging/again.sh ARCHES        AGAIN_GOCACHE: a cache that exists, when minutes count
#
# ARCHES may be some of those that were made: then the SBOM, which is about all, is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
first=$PWD/build/packages

again=$(mktemp -d /tmp/kvpipe-again.XXXXXX)
trap 'chmod -R u+w "$again" && rm -rf "$again"' EXIT
trap 'exit 143' INT TERM
tree=$again/another/place
# Who runs scripts of a tree trusts it, whoever's it is. To clone its .git is another folder.
git() { command git -c safe.directory='*' "$@"; }
git clone -q --no-hardlinks --upload-pack "git -c safe.directory='*' upload-pack" . "$tree"
# What is not committed yet belongs to it as well.
git ls-files -z | xargs -0 sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh | xargs -0 cp -Pp --parents -t "$tree"
mkdir "$tree/build"
ln -s "$PWD/build/tools" "$PWD/build/venv" "$tree/build/"

cd "$tree"
(
	umask 077
	export GOCACHE=${AGAIN_GOCACHE:-$again/cache} TZ=Asia/Kathmandu LC_ALL=C
	make -s packages ARCHES="$1" >"$again/log" 2>&1
) || { cat "$again/log"; exit 1; }
others=() # what is in the names of packages that are not made again
[[ " $1 " == *' amd64 '* ]] || others+=(-e '[_.]amd64\.' -e '[_.]x86_64\.' -e '\.cdx\.json$')
[[ " $1 " == *' arm64 '* ]] || others+=(-e '[_.]arm64\.' -e '[_.]aarch64\.' -e '\.cdx\.json$')
sums() { grep -v "${others[@]}" -e '^$' "$1"; }
sums build/packages/SHA256SUMS >"$again/sums"
if ! diff <(sums "$first/SHA256SUMS") "$again/sums"; then
	echo 'packages: two builds of one tree differ in the files above' >&2
	exit 1
fi
echo "packages: $(wc -l <"$again/sums") files are the same bytes when they are made again"
