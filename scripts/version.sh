#!/usr/bin/env bash
# Prints the version of this tree: `git describe` where a release tag is in
# reach, else the number in VERSION with the commit, else that number alone
# (a tree without git, as a source tarball). Where git does not say, as of another
# user's tree, it is no release at least.
set -eu
cd "$(dirname "$0")/.."

number=$(cat VERSION)
if tag=$(git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null); then
	echo "${tag#v}"
elif commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
	echo "$number-dev+$commit"
elif [ -e .git ]; then
	echo "$number-dev"
else
	echo "$number"
fi
