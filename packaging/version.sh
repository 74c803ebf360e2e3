#!/usr/bin/env bash
# Prints what packages call this tree, as assignments for a shell:
#
#   PACKAGE_VERSION  for deb and rpm: 1.2.3 at the tag v1.2.3; before it
#                    1.2.3~devTIME.gCOMMIT, which sorts by time and below 1.2.3
#   PYTHON_VERSION   the same as PEP 440 has it: 1.2.3.devTIME+gCOMMIT
#   EPOCH            SOURCE_DATE_EPOCH, else the commit's time, seconds since 1970:
#                    the time of every file in every package
#
# A PACKAGE_VERSION or PYTHON_VERSION in the environment wins: tests of upgrades make two of one tree.
set -euo pipefail
cd "$(dirname "$0")/.."

# Who runs scripts of a tree trusts it, whoever's it is.
git() { command git -c safe.directory="$(pwd -P)" "$@"; }

number=$(cat VERSION)
python=$number package=$number
if [ ! -e .git ]; then
	# A tree without git, such as a source tarball, also one within somebody's repository: the changelog is as old as the release.
	epoch=$(stat -c %Y CHANGELOG.md)
elif commit=$(git rev-parse --short=12 HEAD); then
	epoch=$(git log -1 --format=%ct)
	if ! git describe --tags --exact-match --match "v$number" >/dev/null 2>&1; then
		stamp=$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd)
		package=$number~dev$stamp.g$commit
		python=$number.dev$stamp+g$commit
	fi
else
	echo "version.sh: git does not know the commit of $PWD, which its packages are named after: see what it says" >&2
	exit 1
fi
echo "PACKAGE_VERSION=${PACKAGE_VERSION:-$package}"
echo "PYTHON_VERSION=${PYTHON_VERSION:-$python}"
echo "EPOCH=${SOURCE_DATE_EPOCH:-$epoch}"
