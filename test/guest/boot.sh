#!/usr/bin/env bash
# Boots the guest and runs a program there as root under systemd, with the files
# of this machine: what the program changes ends with the guest. Its output is
# ours, and so is its status; 124 when the guest takes longer than LIMIT seconds.
#
# usage: test/guest/boot.sh PROGRAM        an absolute path; LIMIT=1500 CPUS=2
set -euo pipefail
cd "$(dirname "$0")/../.."
guest=build/guest
version=$(cat $guest/version)
console=$guest/console.log

# KVM is not used even where it is there: not every one runs a stock kernel. What is translated for a program serves its next run only
# where that has it at the same address; page tables of five levels are walked for every page, for nothing.
timeout --kill-after=10 "${LIMIT:-1500}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max,la57=off -smp "${CPUS:-2}" -m 2560 \
	-display none -monitor none -no-reboot -nodefaults -serial file:$console \
	-kernel $guest/kernel/boot/vmlinuz-"$version" -initrd $guest/initrd \
	-append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off norandmaps random.trust_cpu=on systemd.show_status=0 run=$1" \
	-virtfs local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap </dev/null &
qemu=$!
trap 'kill $qemu 2>/dev/null || true' EXIT
rc=0
wait $qemu || rc=$?
trap - EXIT
tr -d '\r' <$console
[ $rc = 0 ] || exit $rc
status=$(tr -d '\r' <$console | sed -n 's/^guest: ended with //p' | tail -n 1)
[ -n "$status" ] || { echo 'guest: the program said nothing of its end'; exit 1; }
echo "the program in the guest ended with $status"
exit "$status"
