#!/usr/bin/env bash
# Makes sure that the programs a build and its tests need are there, and
# installs from apt what is missing. Quick and silent when nothing is.
#
#   scripts/deps.sh build      what `make build` and `make demo` need
#   scripts/deps.sh test       also what `make test` needs
#   scripts/deps.sh generate   also what `make generate` needs
#   scripts/deps.sh network    what `make build` and `make network` need
#   scripts/deps.sh cross      what `make build` needs, and compilers for ARCHES
#   scripts/deps.sh root       what `make build` and test/rigs/root.sh need
#   scripts/deps.sh guest      what `make test-systemd` needs besides packages
#   scripts/deps.sh packages   what `make build` and `make packages` need, for ARCHES
#   scripts/deps.sh packages-rig  also what installs and checks them
#
# Expected beforehand: make, gcc, Go >= 1.26, Python >= 3.9 with venv.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
go=${GO:-go}
read -ra cc <<<"${CC:-gcc}" # as "ccache gcc"

fail() {
	printf 'make deps: %s\n' "$@" >&2
	exit 1
}

# at_least HAVE WANT: true when version HAVE is WANT or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

compiles() { echo '#include <stdio.h>' | "${cc[@]}" -E - >/dev/null 2>&1; }

sanitizes() {
	local probe
	probe=$(mktemp) || return 1
	echo 'int main(void) { return 0; }' |
		"${cc[@]}" -fsanitize=address,undefined -x c -o "$probe" - 2>/dev/null
	local rc=$?
	rm -f "$probe"
	return $rc
}

# A tree that has a commit is called after it.
commits() { [ ! -e .git ] || command -v git >/dev/null || echo git; }

# missing PURPOSE prints the Debian packages that would bring what is not there.
missing() {
	command -v "${cc[0]}" >/dev/null || echo gcc
	compiles || echo libc6-dev
	command -v ar >/dev/null || echo binutils
	command -v "$python" >/dev/null || echo python3
	"$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
	[ "$1" != build ] || return 0
	if [ "$1" = network ]; then
		command -v nft >/dev/null || echo nftables
		command -v ip >/dev/null || echo iproute2
		return 0
	fi
	if [ "$1" = packages ] || [ "$1" = packages-rig ] || [ "$1" = cross ]; then
		commits
		[ "$1" = cross ] || command -v rpm >/dev/null || echo rpm
		# As packages.mk has it: the own architecture's compiler, or a cross compiler.
		for arch in ${ARCHES-}; do
			case $arch,$(uname -m) in
			amd64,x86_64 | arm64,aarch64) ;;
			amd64,*) command -v x86_64-linux-gnu-gcc >/dev/null || echo gcc-x86-64-linux-gnu libc6-dev-amd64-cross ;;
			arm64,*) command -v aarch64-linux-gnu-gcc >/dev/null || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;;
			esac
		done
		[ "$1" = packages-rig ] || return 0
		command -v lintian >/dev/null || echo lintian
		command -v mmdebstrap >/dev/null || echo mmdebstrap
		command -v pkg-config >/dev/null || echo pkg-config
		command -v qemu-aarch64 >/dev/null || echo qemu-user
		return 0
	fi
	if [ "$1" = root ]; then
		command -v mmdebstrap >/dev/null || echo mmdebstrap
		return 0
	fi
	if [ "$1" = guest ]; then
		command -v qemu-system-x86_64 >/dev/null || echo qemu-system-x86
		command -v busybox >/dev/null || echo busybox-static
		command -v cpio >/dev/null || echo cpio
		PATH=$PATH:/sbin:/usr/sbin command -v depmod >/dev/null || echo kmod
		PATH=$PATH:/sbin:/usr/sbin command -v ip >/dev/null || echo iproute2
		command -v dbus-daemon >/dev/null || echo dbus
		[ -x /lib/systemd/systemd ] || echo systemd
		command -v deb-systemd-helper >/dev/null || echo init-system-helpers
		return 0
	fi
	commits
	sanitizes || echo gcc libasan8 libubsan1
	command -v g++ >/dev/null || echo g++ # our headers are for C++, too
	command -v pkg-config >/dev/null || echo pkg-config
	command -v mandoc >/dev/null || echo mandoc
	command -v abidiff >/dev/null || echo abigail-tools
	command -v systemd-analyze >/dev/null || echo systemd
	command -v clang-tidy >/dev/null || echo clang-tidy
	command -v clang-format >/dev/null || echo clang-format
	[ "$1" != test ] || return 0
	command -v protoc >/dev/null || echo protobuf-compiler
}

apt_install() {
	command -v apt-get >/dev/null || fail "not a Debian-like system: install what corresponds to: $*"
	local root=()
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null ||
			fail "needs root to install packages; run as root: apt-get install $*"
		root=(sudo)
		[ -t 0 ] || root=(sudo -n)
	fi
	echo "make deps: apt-get install $*"
	# A fresh machine may be busy with updates of its own, and a mirror may stumble.
	local log patient=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
	log=$(mktemp)
	mkdir -p build
	# One at a time of those that make runs side by side. What packages start does not inherit the lock.
	if ! { flock 9 && apt_update "$log" && "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get "${patient[@]}" install -q -y --no-install-recommends "$@" >"$log" 2>&1 9>&-; } 9>build/.apt; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		fail "apt-get could not install: $*" "install these packages by hand, then run it again"
	fi
	rm -f "$log"
}

# apt_update LOG: for apt_install. DPkg::Lock::Timeout is of dpkg's lock alone: for that of the lists, which an update of the
# machine's own may hold, apt-get does not wait.
apt_update() {
	local tries=60
	until "${root[@]}" env LC_ALL=C apt-get "${patient[@]}" update -q >"$1" 2>&1 9>&-; do
		grep -q 'Could not get lock' "$1" || return 1
		tries=$((tries - 1))
		if [ $tries = 0 ]; then
			echo 'another apt-get has had the lock for five minutes: see what it does, and end it if it hangs' >>"$1"
			return 1
		fi
		sleep 5
	done
}

command -v "$go" >/dev/null ||
	fail 'no go in PATH; install Go 1.26 or newer from https://go.dev/dl'
[ "${cc[0]}" = gcc ] || command -v "${cc[0]}" >/dev/null || fail "no ${cc[0]} in PATH, which CC names"
have=$("$go" env GOVERSION)
at_least "${have#go}" 1.26 || fail "$have is too old; install Go 1.26 or newer from https://go.dev/dl"

purpose=${1:-test}
mapfile -t packages < <(missing "$purpose" | tr ' ' '\n' | sort -u)
if [ ${#packages[@]} -gt 0 ]; then
	apt_install "${packages[@]}"
	mapfile -t packages < <(missing "$purpose" | tr ' ' '\n' | sort -u)
	[ ${#packages[@]} -eq 0 ] || fail "still missing after installation: ${packages[*]}"
fi

have=$("$python" -c 'import platform; print(platform.python_version())')
at_least "$have" 3.9 || fail "Python $have is too old; install 3.9 or newer, or set PYTHON=/path/to/python3"
