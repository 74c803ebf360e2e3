#!/usr/bin/env bash
# The packages as they are installed: made twice and compared, then into roots of
# their own, by dpkg and by rpm, upgraded, removed and purged; lintian; the arm64
# ones under an emulator; the wheel's platform; the source distribution.
set -u
cd "$(dirname "$0")/../.."

cannot() {
	echo "$*"
	exit 77
}

[ "$(id -u)" = 0 ] || cannot 'roots to install packages into need root'
make -s packages-rig-deps || cannot 'lintian, mmdebstrap, rpm, qemu-user or a cross compiler is not here and cannot be installed'
unshare --fork --pid --mount --kill-child true || cannot 'unshare makes no namespaces here'
need=4 # GiB, for two trees and three roots
have=$(df --output=avail /tmp | awk 'NR == 2 { print int($1 / 1048576) }')
[ "$have" -ge $need ] || cannot "the packages and roots need $need GiB in /tmp, $have GiB are free"
exec make packages-rig
