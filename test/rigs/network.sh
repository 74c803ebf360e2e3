#!/usr/bin/env bash
# Two daemons in network namespaces of their own and nftables between them:
# packets are lost, in both directions or one, all, some or the large ones,
# connections are reset or stand still, on and off, while daemons and engines are
# killed. test/chaos/network_test.go looks at what becomes of the promises.
set -u
cd "$(dirname "$0")/../.."

cannot() {
	echo "$*"
	exit 77
}

[ "$(id -u)" = 0 ] || cannot 'network namespaces and nftables need root'
unshare --net --mount true || cannot 'unshare makes no network namespace here'
make -s network-deps || cannot 'the package nftables is not here and cannot be installed'
unshare --net nft -f - <<-'RULES' || cannot 'the kernel lacks a part of nf_tables: drop, reject, numgen, jhash'
	table inet probe {
	chain in {
	type filter hook input priority 0
	tcp flags & (syn | ack) == syn numgen random mod 100 < 1 counter drop
	jhash tcp sport mod 2 seed 0x7 == 0 meta l4proto tcp counter reject with tcp reset
	}
	}
	RULES
exec make network CYCLES="${CYCLES:-44}"
