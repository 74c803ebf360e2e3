#!/usr/bin/env bash
# Makes the packages of one format for one architecture from what packages.mk has
# built: lays each one out below build/packages/stage, splits off debugging
# symbols, writes nfpm's configuration from the template here, and runs it.
#
# usage: packaging/nfpm/make.sh deb|rpm amd64|arm64 [FOLDER instead of build/packages]
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/../.."
format=$1 arch=$2 to=${3:-build/packages}

out=build/packages
built=$out/$arch doc=$out/doc
work=$out/stage/$format-$arch
eval "$(packaging/version.sh)"
export SOURCE_DATE_EPOCH=$EPOCH
umask 022
number=$(cat VERSION)
soversion=0.$number

case $arch in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) echo "make.sh: $arch: give amd64 or arm64" >&2; exit 2 ;;
esac
case $format in
deb)
	library=libkvpipe0 devel=libkvpipe-dev debug=dbgsym libdir=/usr/lib/$machine-linux-gnu
	target=${PACKAGE_VERSION}-1_$arch.deb joint=_
	;;
rpm)
	library=libkvpipe devel=libkvpipe-devel debug=debuginfo libdir=/usr/lib64
	target=${PACKAGE_VERSION}-1.$machine.rpm joint=-
	;;
*) echo "make.sh: $format: give deb or rpm" >&2; exit 2 ;;
esac
tool=$machine-linux-gnu-
[ "$machine" != "$(uname -m)" ] || tool=

. packaging/nfpm/layout.sh

is_elf() { [ "$(head -c 4 "$1" | od -An -tx1 | tr -d ' ')" = 7f454c46 ]; }

# needs ROOT...: what the programs and libraries below need of others, one item of a YAML list a line.
needs() {
	local file glibc
	find "$@" -type f -print0 | while IFS= read -r -d '' file; do
		is_elf "$file" || continue
		if [ "$format" = deb ]; then
			glibc=$(packaging/glibc.sh "$file")
			[ "$glibc" = none ] || echo "      - libc6 (>= $glibc)"
		else
			/usr/lib/rpm/elfdeps --requires "$file" | sed "s/.*/      - '&'/"
		fi
	done | sort -u
}

# split ROOT DEBUGROOT: moves debugging symbols away, to where gdb looks by build id. Prints the ids.
split() {
	local file id folder
	find "$1" -name '*.a' -exec "${tool}strip" --strip-debug --remove-section=.comment --enable-deterministic-archives {} +
	find "$1" -type f -print0 | sort -z | while IFS= read -r -d '' file; do
		is_elf "$file" || continue
		id=$("${tool}readelf" -n "$file" | sed -n 's/^ *Build ID: //p')
		[ -n "$id" ] || { echo "make.sh: $file has no build id" >&2; exit 1; }
		folder=$2/usr/lib/debug/.build-id/${id:0:2}
		install -d "$folder"
		"${tool}objcopy" --only-keep-debug --compress-debug-sections "$file" "$folder/${id:2}.debug"
		chmod 644 "$folder/${id:2}.debug"
		"${tool}strip" --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
		echo "$id"
	done
}

# owned ROOT: the folders below that no other package owns. A deb's go by themselves when they are empty, a rpm's are listed.
owned() {
	[ "$format" = deb ] || find "$1" -type d \( -path '*/share/doc/*' -o -path '*/share/licenses/*' -o -path '*/share/kvpipe' -o -path '*/include/kvpipe' \
		-o -path '*/debug/.build-id*' \) -printf '/%P\n' | LC_ALL=C sort
	[ ! -d "$1/etc/kvpipe" ] || echo /etc/kvpipe
}

# list ROOT: nfpm's list of the files below, and of the folders that go with them.
list() {
	echo 'contents:'
	find "$1" \( -type f -o -type l \) -printf '%P\n' | LC_ALL=C sort | while IFS= read -r path; do
		if [ -L "$1/$path" ]; then
			printf '  - {src: "%s", dst: "/%s", type: symlink}\n' "$(readlink "$1/$path")" "$path"
			continue
		fi
		local type='' owner=''
		case $path in
		etc/*)
			type=', type: "config|noreplace"'
			# A deb has no group kvpipe yet when it is unpacked; its postinst gives the file away.
			[ "$format" = deb ] || owner=', group: kvpipe'
			;;
		usr/share/doc/*) [ "$format" = deb ] || type=', type: doc' ;;
		usr/share/licenses/*) type=', type: license' ;;
		esac
		printf '  - {src: "%s", dst: "/%s"%s, file_info: {mode: 0%s%s}}\n' "$1/$path" "$path" "$type" "$(stat -c %a "$1/$path")" "$owner"
	done
	owned "$1" | sed 's/.*/  - {dst: "&", type: dir}/'
	case $1 in *-dbgsym) echo "  - {src: $name, dst: /usr/share/doc/$name-dbgsym, type: symlink}" ;; esac
}

# pack NAME TEMPLATE ROOT [WORD=TEXT]...
pack() {
	local package=$1 template=$2 root=$3 fill=() pair
	shift 3
	needs "$root" >"$work/depends"
	: >"$work/provides"
	if [ "$format" = rpm ]; then
		find "$root" -name '*.so.*' -type f -exec /usr/lib/rpm/elfdeps --provides {} + | sed "s/.*/      - '&'/" >"$work/provides"
	fi
	for pair in ARCH="$arch" VERSION="$PACKAGE_VERSION" FULLVERSION="$PACKAGE_VERSION-1" PCVERSION="$number" LIBRARY=$library DEVEL=$devel \
		DATE="$(date -u -d "@$EPOCH" +%Y-%m-%dT%H:%M:%SZ)" "$@"; do
		fill+=(-e "s|@${pair%%=*}@|${pair#*=}|")
	done
	sed -e "/^@DEPENDS@/{r $work/depends" -e 'd}' -e "/^@PROVIDES@/{r $work/provides" -e 'd}' "${fill[@]}" \
		"packaging/nfpm/$template.yaml" packaging/nfpm/common.yaml >"$work/$package.yaml"
	# Debian's packages say it in their copyright file.
	[ "$format" = rpm ] || sed -i '/^license: /d' "$work/$package.yaml"
	list "$root" >>"$work/$package.yaml"
	build/tools/nfpm package --packager "$format" --config "$work/$package.yaml" --target "$to/$package$joint$target" >"$work/$package.log" ||
		{ cat "$work/$package.log" >&2; exit 1; }
	echo "  NFPM $to/$package$joint$target"
}

# linkable DEB NAME: adds what nfpm does not write: by which dpkg-shlibdeps makes a library's users depend on it.
linkable() {
	local tree=$work/$2.deb
	dpkg-deb --raw-extract "$1" "$tree"
	rm "$tree/DEBIAN/conffiles" # it is empty, which dpkg-deb refuses
	echo "libkvpipe 0 $2 (>= $number~)" >"$tree/DEBIAN/shlibs"
	{
		echo "libkvpipe.so.0 $2 #MINVER#"
		awk '{ sub(/.*@/, ""); print " " $0 "@" $0 }' capi/kvpipe.symbols | sort -u | sed "s/$/ $number~/"
		sed "s/.*/ & $number~/" capi/kvpipe.symbols
	} >"$tree/DEBIAN/symbols"
	chmod 644 "$tree/DEBIAN"/s*
	dpkg-deb --root-owner-group -Zgzip --build "$tree" "$1" >/dev/null
}

rm -rf "$work"
mkdir -p "$work"
for package in kvpiped kvpipectl library devel; do
	name=$package
	case $package in library) name=$library ;; devel) name=$devel ;; esac
	root=$work/$name
	"lay_$package" "$root" "$name"
	split "$root" "$root-$debug" >"$work/ids"
	pack "$name" "$package" "$root"
	[ "$format-$package" != deb-library ] || linkable "$to/$name$joint$target" "$name"
	if [ -s "$work/ids" ]; then
		[ "$format" = deb ] || papers "$root-$debug" "$name-$debug"
		pack "$name-$debug" debug "$root-$debug" DEBUG="$name-$debug" OF="$name" BUILDIDS="$(paste -sd ' ' "$work/ids")" \
			MULTIARCH="$([ $package = library ] && echo same || true)"
	fi
done
