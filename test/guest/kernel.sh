#!/usr/bin/env bash
# Makes build/guest: Debian's kernel, unpacked and not installed, and an initial
# file system of busybox, the modules that reach the files of this machine, and
# ./init. Quick when all is there.
#
# Says why and ends with 77 where the packages cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
guest=build/guest
here=test/guest

cannot() {
	echo "$*"
	exit 77
}

for tool in qemu-system-x86_64 busybox cpio depmod modprobe; do
	PATH=$PATH:/sbin:/usr/sbin command -v $tool >/dev/null || cannot "$tool is not here: scripts/deps.sh guest installs it"
done
PATH=$PATH:/sbin:/usr/sbin

fetch() {
	local name
	name=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1)
	[ -n "$name" ] || cannot 'apt knows no package linux-image-amd64'
	mkdir -p $guest/deb
	(cd $guest/deb && apt-get download -q "$name") >$guest/fetch.log 2>&1 || cannot "apt-get download $name: $(tail -n 1 $guest/fetch.log)"
	dpkg -x $guest/deb/"$name"_*.deb $guest/kernel
	rm -r $guest/deb
	local version
	version=$(basename $guest/kernel/boot/vmlinuz-* | sed s/vmlinuz-//)
	depmod -b "$PWD/$guest/kernel" "$version"
	echo "$version" >$guest/version
}

[ -s $guest/version ] || fetch
version=$(cat $guest/version)
[ $guest/initrd -nt $here/init ] && [ $guest/initrd -nt $here/kernel.sh ] && exit 0

root=$guest/root
rm -rf $root
mkdir -p $root/bin $root/mods
cp "$(command -v busybox)" $root/bin/
install -m 755 $here/init $root/init
for module in 9p 9pnet_virtio virtio_pci overlay virtio_net dummy veth; do
	modprobe -d "$PWD/$guest/kernel" -S "$version" --show-depends $module
done | sed -n 's/^insmod //p' | awk '!seen[$1]++ { print $1 }' | while read -r file; do
	cp "$file" $root/mods/
	basename "$file" >>$root/mods/order
done
(cd $root && find . | cpio --quiet -o -H newc) >$guest/initrd.new
mv $guest/initrd.new $guest/initrd
