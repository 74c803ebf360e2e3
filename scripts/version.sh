#!/usr/bin/env bash
# Prints the version of this tree: `git describe` where a release tag is in
# reach, else the number in VERSION with the commit, else that number alone
# (a tree without git, as a source tarball, also one within somebody's repository).
# Where git does not say it is no release at least.
set -eu
cd "$(dirname "$0")/.."

# Who runs scripts of a tree trusts it, whoever's it is.
git() { command git -c safe.directory="$(pwd -P)" "$@" 2>/dev/null; }

number=$(cat VERSION)
if [ ! -e .git ]; then
	echo "$number"
elif tag=$(git describe --tags --match 'v[0-9]*' --dirty); then
	echo "${tag#v}"
elif commit=$(git rev-parse --short=12 HEAD); then
	echo "$number-dev+$commit"
else
	echo "$number-dev"
fi
