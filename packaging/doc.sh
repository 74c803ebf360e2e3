#!/usr/bin/env bash
# Writes what packages carry beside programs into build/packages/doc: the
# configuration as it is installed, completions, man pages. `make build` comes
# first: programs are asked what they say of themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

doc=build/packages/doc
rm -rf "$doc"
mkdir -p "$doc/completions" "$doc/man"

# A daemon without certificates starts all the same, for its own node; listening for others is one line away.
sed 's|^#listen = .*|# Installed as "off": it needs the certificates below. The default is "[::]:7650".\nlisten = "off"|' packaging/kvpiped.toml >"$doc/kvpiped.toml"
grep -qx 'listen = "off"' "$doc/kvpiped.toml" || { echo 'doc.sh: packaging/kvpiped.toml has no line #listen' >&2; exit 1; }
build/bin/kvpiped --check-config --config "$doc/kvpiped.toml" >/dev/null

build/bin/kvpipectl completion bash >"$doc/completions/kvpipectl"
build/bin/kvpipectl completion zsh >"$doc/completions/_kvpipectl"
build/bin/kvpipectl completion fish >"$doc/completions/kvpipectl.fish"

eval "$(packaging/version.sh)"
${PYTHON:-python3} -B packaging/man/make.py build/bin "$doc/man" "$(cat VERSION)" "$EPOCH"
