#!/usr/bin/env bash
# Makes the wheel for one architecture from what packages.mk has built, or the
# source distribution: both are one tree, once with the library and the programs
# in it, once with what they are made of.
#
# usage: packaging/wheel/make.sh amd64|arm64|sdist
set -euo pipefail
cd "$(dirname "$0")/../.."
what=$1

out=build/packages
venv=$PWD/build/venv
eval "$(packaging/version.sh)"
export SOURCE_DATE_EPOCH=$EPOCH
umask 022
tree=$out/stage/python-$what/kvpipe-$PYTHON_VERSION

# tracked PATH...: the files of the project there; those that git knows, or all where the tree has no git of its own.
tracked() {
	if [ -e .git ]; then
		git -c safe.directory="$(pwd -P)" ls-files -z -- "$@"
	else
		find "$@" -type f -not -path '*/__pycache__/*' -print0
	fi
}

rm -rf "$out/stage/python-$what"
mkdir -p "$tree"
cp -r python/README.md LICENSE NOTICE packaging/wheel/setup.py "$tree"
tracked python/kvpipe | xargs -0 cp --parents -t "$tree"
mv "$tree/python/kvpipe" "$tree/kvpipe"
rmdir "$tree/python"
sed -e "s/^version = .*/version = \"$PYTHON_VERSION\"/" python/pyproject.toml >"$tree/pyproject.toml"
grep -q "^version = \"$PYTHON_VERSION\"" "$tree/pyproject.toml"

# native: what library and programs are made of, without tests.
native() {
	tracked VERSION go.mod go.sum include capi cmd daemon discovery internal |
		grep -zv -e '_test\.go$' -e '/testdata/' -e '^capi/tests/' | xargs -0 cp --parents -t "$1"
	scripts/version.sh >"$1/VERSION" # what its programs say of themselves: this tree, not the release that it leads to
}

case $what in
sdist)
	mkdir "$tree/native"
	native "$tree/native"
	# The metadata are those of a wheel: setuptools writes them when asked for nothing else.
	"$venv/bin/python" - "$tree" <<-'PY'
		import os, shutil, sys, tempfile
		os.chdir(sys.argv[1])
		from setuptools import build_meta
		with tempfile.TemporaryDirectory() as folder:
		    import contextlib, io
		    with contextlib.redirect_stdout(io.StringIO()):
		        info = build_meta.prepare_metadata_for_build_wheel(folder)
		    shutil.copy(os.path.join(folder, info, "METADATA"), "PKG-INFO")
	PY
	rm -rf "$tree"/*.egg-info "$tree/build"
	chmod -R u=rwX,go=rX "$tree"
	tar -C "${tree%/*}" --sort=name --mtime="@$EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -c "${tree##*/}" |
		gzip -9n >"$out/kvpipe-$PYTHON_VERSION.tar.gz"
	echo "  SDIST $out/kvpipe-$PYTHON_VERSION.tar.gz"
	exit
	;;
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) echo "make.sh: $what: give amd64, arm64 or sdist" >&2; exit 2 ;;
esac

tool=$machine-linux-gnu-
[ "$machine" != "$(uname -m)" ] || tool=
install -D -m 755 "$out/$what/lib/libkvpipe.so.0" "$tree/kvpipe/libkvpipe.so.0"
install -D -m 755 -t "$tree/kvpipe/bin" "$out/$what/bin/kvpiped" "$out/$what/bin/kvpipectl"
for program in kvpiped kvpipectl; do # setuptools takes along what is named so
	install -m 644 "$out/$what/$program.licences" "$tree/LICENCES.$program"
done
"${tool}strip" --strip-unneeded --remove-section=.comment "$tree/kvpipe/libkvpipe.so.0" "$tree"/kvpipe/bin/*

# The oldest systems that may install it are those whose glibc has all that the files use.
glibc=$(packaging/glibc.sh "$tree/kvpipe/libkvpipe.so.0" "$tree"/kvpipe/bin/*)
export KVPIPE_PLATFORM=manylinux_${glibc/./_}_$machine
rm -f "$out"/kvpipe-*"_$machine.whl"
"$venv/bin/pip" wheel -q --disable-pip-version-check --no-build-isolation --no-deps --no-index -w "$out" "$tree"
echo "  WHL  $(ls "$out"/kvpipe-*"_$machine.whl")"
