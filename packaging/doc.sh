#!/usr/bin/env bash
# Writes what packages carry beside programs: the configuration as it is
# installed, completions, man pages, the pages of docs/. `make build` comes
# first: programs are asked what they say of themselves.
#
# usage: packaging/doc.sh [FOLDER, new or empty, instead of build/packages/doc]
set -euo pipefail
given=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."

doc=${given:-build/packages/doc}
[ -n "$given" ] || rm -rf "$doc"
if [ -n "$(ls -A "$doc" 2>/dev/null)" ]; then
	echo "doc.sh: $doc is not empty" >&2
	exit 1
fi
mkdir -p "$doc/completions" "$doc/man" "$doc/pages"

# A daemon without certificates starts all the same, for its own node; listening for others is one line away.
sed 's|^#listen = .*|# Installed as "off": it needs the certificates below. The default is "[::]:7650".\nlisten = "off"|' packaging/kvpiped.toml >"$doc/kvpiped.toml"
grep -qx 'listen = "off"' "$doc/kvpiped.toml" || { echo 'doc.sh: packaging/kvpiped.toml has no line #listen' >&2; exit 1; }
build/bin/kvpiped --check-config --config "$doc/kvpiped.toml" >/dev/null

build/bin/kvpipectl completion bash >"$doc/completions/kvpipectl"
build/bin/kvpipectl completion zsh >"$doc/completions/_kvpipectl"
build/bin/kvpipectl completion fish >"$doc/completions/kvpipectl.fish"

eval "$(packaging/version.sh)"
${PYTHON:-python3} -B packaging/man/make.py build/bin "$doc/man" "$(cat VERSION)" "$EPOCH"

# The pages lie beside each other, so that links between them hold. What else they link to is not installed with them.
source=$(sed -n 's/^homepage: //p' packaging/nfpm/common.yaml)/blob/v$(cat VERSION)
for page in docs/*.md; do
	sed -e 's|](\.\./packaging/kvpiped\.toml)|](/etc/kvpipe/kvpiped.toml)|g' -e "s|](\.\./|]($source/|g" "$page" >"$doc/pages/${page##*/}"
done
