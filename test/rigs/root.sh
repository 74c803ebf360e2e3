#!/usr/bin/env bash
# Engines in a root of their own, a small Debian of mmdebstrap, and the daemon
# outside: they share the directory of its socket, by a bind mount, and nothing
# else. The daemon is stopped, killed and started again.
set -u
cd "$(dirname "$0")/../.."

cannot() {
	echo "$*"
	exit 77
}

[ "$(id -u)" = 0 ] || cannot 'a root of its own and bind mounts need root'
unshare --mount --propagation private true || cannot 'unshare makes no mount namespace here'
make -s build build/test/root.test || exit 1
make -s root-deps || cannot 'the package mmdebstrap is not here and cannot be installed'
root=build/root
if [ ! -e $root ]; then # it is there whole or not at all
	rm -rf $root.new
	# mmdebstrap asks the mirrors that this machine asks.
	mmdebstrap --quiet --variant=essential --mode=root "$(. /etc/os-release && echo "$VERSION_CODENAME")" $root.new </dev/null >build/root.log 2>&1 ||
		cannot "mmdebstrap: $(tail -n 1 build/root.log)"
	mv $root.new $root
fi
mkdir -p $root/opt/kvpipe/bin $root/opt/kvpipe/lib &&
	cp build/bin/test-engine $root/opt/kvpipe/bin/ &&
	cp build/lib/libkvpipe.so.0 $root/opt/kvpipe/lib/ || exit 1
KVPIPE_BIN=$PWD/build/bin exec unshare --mount --propagation private build/test/root.test -test.v -test.timeout 10m -root "$PWD/$root"
