#!/usr/bin/env bash
# The packages under a real systemd, in a guest of QEMU: installed, restarted and
# killed under engines, watched, upgraded and back, purged.
set -u
cd "$(dirname "$0")/../.."

cannot() {
	echo "$*"
	exit 77
}

[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || cannot 'the guest is this machine again, and has to be Debian on amd64'
[ "$(id -u)" = 0 ] || cannot 'the guest reads all files of this machine, which needs root'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
make -s guest-deps >"$log" 2>&1 || { cat "$log"; cannot "what the guest needs cannot be installed: $(tail -n 1 "$log")"; }
# make hides the status of what it ran: the kernel's 77 is asked for first.
test/guest/kernel.sh || exit
exec make test-systemd
