"""The Debian packages in a root without an init: the user, the files, an upgrade, a purge. And what the image is made of."""

import subprocess

import pytest
from places import ROOT
from roots import ARCH, START, STOP, newer, package

CONF = "/etc/kvpipe/kvpiped.toml"


@pytest.fixture(scope="module")
def before():
    return {}


@pytest.fixture(scope="module")
def root(new_root, before):
    """With the packages of the container image, installed by its own script; and with the library."""
    root = new_root()
    before["files"] = root.files()
    folder = root.bring(ROOT / "packaging/container/install.sh", package("kvpiped", "deb"), package("kvpipectl", "deb"))
    assert "kvpiped 0." in root.run(f"sh {folder}/install.sh").split("\n")[-2]
    return root


def test_the_user_and_the_files(root):
    assert root.run("getent passwd kvpipe").split(":")[5:] == ["/run/kvpipe", "/usr/sbin/nologin\n"]
    assert root.run(f"stat -c '%a %U %G' {CONF} /run/kvpipe") == "640 root kvpipe\n755 kvpipe kvpipe\n"
    enabled = {str(path.relative_to(root / "etc/systemd/system")) for path in (root / "etc/systemd/system").rglob("kvpiped*")}
    assert enabled == {"multi-user.target.wants/kvpiped.service", "sockets.target.wants/kvpiped.socket"}, "peers are for later"


def test_the_installed_configuration_is_good(root):
    assert root.run("kvpiped --check-config") == f"{CONF}: ok\n"


def test_the_daemon_runs_in_the_image(root):
    said = root.run(START + "kvpipectl status" + STOP)
    assert "node " in said and "running" in said


def test_a_program_uses_the_installed_library(root):
    folder = root.bring(package("libkvpipe0", "deb"), package("libkvpipe-dev", "deb"))
    root.run(f"dpkg -i {folder}/libkvpipe*.deb")
    program = root / "tmp/handover"
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "kvpipe"], check=True, stdout=subprocess.PIPE, universal_newlines=True, env={
        "PATH": "/usr/bin:/bin", "PKG_CONFIG_SYSROOT_DIR": str(root.path),
        "PKG_CONFIG_LIBDIR": str(next(root.path.glob("usr/lib/*/pkgconfig")))}).stdout.split()
    library = next(root.path.glob("usr/lib/*/libkvpipe.so")).parent
    source = ROOT / "examples/c/handover.c"
    subprocess.run(["gcc", "-D_GNU_SOURCE", source, "-o", program, f"-I{root / 'usr/include'}", f"-L{library}", *flags, "-pthread"], check=True)
    root.run(START + "/tmp/handover" + STOP)


def test_an_upgrade_keeps_the_configuration(root, tmp_path):
    root.run(f"echo '# mine' >>{CONF} && chmod 600 {CONF}")
    folder = root.bring(newer("kvpiped", "deb", tmp_path))
    root.run(f"dpkg --force-confdef --force-confold -i {folder}/kvpiped-99.deb")
    assert root.run("dpkg-query -W -f '${Version}' kvpiped") == "99-1"
    assert root.run(f"tail -n 1 {CONF}") == "# mine\n"
    assert root.run(f"stat -c %a {CONF}") == "600\n"
    assert root.run(f"tail -n 1 {CONF}.dpkg-dist") == "# said by version 99\n"
    previous = package("kvpiped", "deb")
    root.run(f"dpkg --force-confdef --force-confold -i {root.bring(previous)}/{previous.name}")
    assert root.run(f"tail -n 1 {CONF}") == "# mine\n"


def test_removal_keeps_the_configuration_and_purge_leaves_nothing(root, before):
    root.run("dpkg --remove kvpiped")
    assert root.run(f"tail -n 1 {CONF}") == "# mine\n"
    root.run("cd /etc/kvpipe && touch ca.crt $(uname -n).crt $(uname -n).key")
    root.run("dpkg --purge kvpiped kvpipectl libkvpipe-dev libkvpipe0 systemd-standalone-sysusers systemd-standalone-tmpfiles && apt-get -y autoremove")
    left = {path for path in root.files() - before["files"] if not path.startswith(("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"))}
    assert left == set()
    assert not (root / "etc/kvpipe").exists() and not (root / "run/kvpipe").exists()
    assert "kvpipe" in root.run("getent passwd kvpipe"), "its number must not go to another user"


def test_debug_symbols_belong_to_what_is_installed(tmp_path):
    for name, file in (("kvpiped", "usr/bin/kvpiped"), ("kvpipectl", "usr/bin/kvpipectl"), ("libkvpipe0", "usr/lib/*/libkvpipe.so.0.*")):
        for part in (name, f"{name}-dbgsym"):
            subprocess.run(["dpkg-deb", "-x", package(part, "deb"), tmp_path / name], check=True)
        (path,) = (tmp_path / name).glob(file)
        notes = subprocess.run(["readelf", "-n", path], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
        number = notes.split("Build ID: ")[1].split()[0]
        symbols = tmp_path / name / f"usr/lib/debug/.build-id/{number[:2]}/{number[2:]}.debug"
        sections = [subprocess.run(["readelf", "-SW", f], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout for f in (path, symbols)]
        assert "debug_info" not in sections[0] and "debug_info" in sections[1]


def test_lintian_finds_nothing():
    files = sorted((ROOT / "build/packages").glob("*.deb"))
    assert len([f for f in files if f.name.endswith(f"_{ARCH}.deb")]) == 7
    done = subprocess.run(["lintian", "--fail-on", "error,warning", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
