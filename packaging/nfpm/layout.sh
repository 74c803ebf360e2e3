# Where files belong, for make.sh to source. One function lays out one package below $1, a root folder; $format is deb or
# rpm, $built what was made for $arch, $doc what was made for all.

# put MODE FILE... FOLDER
put() {
	local mode=$1 folder=${*: -1}
	shift
	install -d "$folder"
	install -m "$mode" "${@:1:$#-1}" "$folder"
}

# text FILE FOLDER: compressed, and the same at each build.
text() {
	install -d "$2"
	gzip -9nc "$1" >"$2/${1##*/}.gz"
}

# pages SECTION FOLDER NAME...: man pages, and the links of a page's other names.
pages() {
	local page folder=$2/usr/share/man/man$1
	for page in "${@:3}"; do
		install -d "$folder"
		if [ -L "$doc/man/$page" ]; then
			ln -s "$(readlink "$doc/man/$page").gz" "$folder/$page.gz"
		else
			text "$doc/man/$page" "$folder"
		fi
	done
}

# papers FOLDER PACKAGE: what each package says of its origin.
papers() {
	local name=$2
	if [ "$format" = deb ]; then
		put 644 packaging/nfpm/deb/copyright "$1/usr/share/doc/$name"
		debian_changelog >"$work/changelog.Debian"
		text "$work/changelog.Debian" "$1/usr/share/doc/$name"
		cp CHANGELOG.md "$work/changelog"
		text "$work/changelog" "$1/usr/share/doc/$name"
		install -d "$1/usr/share/lintian/overrides"
		cat packaging/nfpm/lintian/all $(ls -d "packaging/nfpm/lintian/$name" 2>/dev/null) >"$1/usr/share/lintian/overrides/$name"
	else
		put 644 LICENSE NOTICE "$1/usr/share/licenses/$name"
		put 644 CHANGELOG.md "$1/usr/share/doc/$name"
	fi
}

# The form that Debian's tools read: the changes themselves are in CHANGELOG.md.
debian_changelog() {
	printf 'kvpipe (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$PACKAGE_VERSION" \
		"$(sed -n 's/^maintainer: //p' packaging/nfpm/common.yaml)" "$(LC_ALL=C date -u -d "@$EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')"
}

lay_kvpiped() {
	put 755 "$built/bin/kvpiped" "$1/usr/bin"
	put 644 packaging/sysusers.d/kvpipe.conf "$1/usr/lib/sysusers.d"
	put 644 packaging/tmpfiles.d/kvpipe.conf "$1/usr/lib/tmpfiles.d"
	local units=(packaging/systemd/*.service packaging/systemd/*.socket)
	[ ${#units[@]} -eq 0 ] || put 644 "${units[@]}" "$1/usr/lib/systemd/system"
	put 644 packaging/systemd/notify-reload.conf "$1/usr/share/kvpipe"
	put 755 packaging/systemd/reload-type.sh "$1/usr/share/kvpipe"
	put 640 "$doc/kvpiped.toml" "$1/etc/kvpipe"
	text "$built/kvpiped.licences" "$1/usr/share/doc/kvpiped"
	# Not compressed: links name them as they are.
	put 644 "$doc"/pages/*.md "$1/usr/share/doc/kvpiped"
	pages 8 "$1" kvpiped.8
	pages 5 "$1" kvpiped.toml.5
	papers "$1" kvpiped
}

lay_kvpipectl() {
	put 755 "$built/bin/kvpipectl" "$1/usr/bin"
	text "$built/kvpipectl.licences" "$1/usr/share/doc/kvpipectl"
	local zsh=site-functions
	[ "$format" = rpm ] || zsh=vendor-completions
	put 644 "$doc/completions/kvpipectl" "$1/usr/share/bash-completion/completions"
	put 644 "$doc/completions/_kvpipectl" "$1/usr/share/zsh/$zsh"
	put 644 "$doc/completions/kvpipectl.fish" "$1/usr/share/fish/vendor_completions.d"
	pages 1 "$1" kvpipectl.1
	papers "$1" kvpipectl
}

lay_library() {
	# As distributions have it: the file is named after the release, the link after the ABI.
	put 644 "$built/lib/libkvpipe.so.0" "$1$libdir"
	mv "$1$libdir/libkvpipe.so.0" "$1$libdir/libkvpipe.so.$soversion"
	ln -s "libkvpipe.so.$soversion" "$1$libdir/libkvpipe.so.0"
	papers "$1" "$2"
}

lay_devel() {
	put 644 include/kvpipe.h "$1/usr/include"
	put 644 include/kvpipe/*.h "$1/usr/include/kvpipe"
	put 644 "$built/lib/libkvpipe.a" "$1$libdir"
	ln -s libkvpipe.so.0 "$1$libdir/libkvpipe.so"
	install -d "$1$libdir/pkgconfig"
	sed -e "s|@libdir@|$libdir|" -e 's|@includedir@|/usr/include|' -e "s|@version@|$number|" \
		-e '/^Libs:/s|-L\S* ||' -e '/^Cflags:/d' scripts/kvpipe.pc.in >"$1$libdir/pkgconfig/kvpipe.pc"
	local names=("$doc"/man/*.3)
	pages 3 "$1" "${names[@]##*/}"
	papers "$1" "$2"
}
