"""The rpms, by rpm's own tools. Their root is Debian's: what it lacks of Fedora is not asked for (--nodeps)."""

import subprocess

import pytest
from roots import newer, package

CONF = "/etc/kvpipe/kvpiped.toml"
NAMES = ("kvpiped", "kvpipectl", "libkvpipe", "libkvpipe-devel", "kvpiped-debuginfo", "kvpipectl-debuginfo", "libkvpipe-debuginfo")


def rpm(*arguments, root=None, check=True):
    """Output of rpm; with root, of one that looks at nothing but that root."""
    where = ["--root", root.path, "--force-debian"] if root else []
    if root and not arguments[0].startswith("-q"):
        where.append("--nodeps")
    done = subprocess.run(["rpm", *where, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0 or not check, done.stdout
    return done.stdout


def ask(name, what):
    return rpm("-qp", what, package(name, "rpm")).split("\n")


# What the site has added, which is no package's to take away.
SITE = "usr/lib/systemd/system/kvpiped.service.d/site.conf"


@pytest.fixture(scope="module")
def root(new_root):
    root = new_root()
    (root / SITE).parent.mkdir(parents=True)
    (root / SITE).touch()
    files = [package(name, "rpm") for name in NAMES]
    rpm("-i", "--test", *files, root=root)
    said = rpm("-i", *files, root=root)
    assert "warning: user" not in said and "warning: group" not in said, said
    return root


def test_digests_are_right():
    for name in NAMES:
        for arch in ("amd64", "arm64"):
            assert "digests OK" in rpm("-K", "--nosignature", package(name, "rpm", arch))


def test_dependencies():
    libc = [line for line in ask("libkvpipe", "--requires") if line.startswith("libc.so.6(GLIBC_2.34)")]
    assert libc and "libkvpipe.so.0(KVPIPE_0.2)(64bit)" in ask("libkvpipe", "--provides")
    assert any(line.startswith("libkvpipe = ") for line in ask("libkvpipe-devel", "--requires"))
    assert "pkgconfig(kvpipe) = 0.1.0" in [line.strip() for line in ask("libkvpipe-devel", "--provides")]
    assert {"systemd", "shadow-utils"} <= set(ask("kvpiped", "--requires"))


def test_files_lie_where_fedora_has_them():
    files = set(ask("kvpiped", "-l"))
    assert {"/usr/bin/kvpiped", "/usr/lib/systemd/system/kvpiped.service", "/usr/lib/sysusers.d/kvpipe.conf", CONF} <= files
    assert "/usr/lib64/libkvpipe.so.0" in ask("libkvpipe", "-l") and "/usr/lib64/libkvpipe.so" in ask("libkvpipe-devel", "-l")
    assert "/usr/share/zsh/site-functions/_kvpipectl" in ask("kvpipectl", "-l")
    for name in NAMES:
        owned = ask(name, "-l")
        assert not {"/usr", "/usr/bin", "/usr/lib64", "/usr/share", "/etc"} & set(owned), "directories of others"
    assert ask("kvpiped", "-c")[:1] == [CONF]
    assert "/usr/share/licenses/kvpiped/LICENSE" in ask("kvpiped", "-L")


def test_installed_as_packed(root):
    assert rpm("-V", "kvpiped", "kvpipectl", "libkvpipe", "libkvpipe-devel", root=root) == ""
    assert root.run(f"stat -c '%a %U %G' {CONF}") == "640 root kvpipe\n"
    assert root.run("kvpiped --check-config") == f"{CONF}: ok\n"
    assert root.run("getent passwd kvpipe").split(":")[5:] == ["/run/kvpipe", "/sbin/nologin\n"]
    assert root.run("kvpipectl version --help")


def test_an_upgrade_keeps_the_configuration(root, tmp_path):
    root.run(f"echo '# mine' >>{CONF}")
    rpm("-U", newer("kvpiped", "rpm", tmp_path), root=root)
    assert rpm("-q", "kvpiped", root=root).startswith("kvpiped-99-1.")
    assert root.run(f"tail -n 1 {CONF}") == "# mine\n"
    assert root.run(f"tail -n 1 {CONF}.rpmnew") == "# said by version 99\n"
    rpm("-U", "--oldpackage", package("kvpiped", "rpm"), root=root)
    assert root.run(f"tail -n 1 {CONF}") == "# mine\n"


def test_removal_leaves_the_changed_configuration_alone(root):
    rpm("-e", *NAMES, root=root)
    left = {path for path in root.files() if "kvpipe" in path}
    assert left == {CONF[1:] + ".rpmsave", CONF[1:] + ".rpmnew", SITE}
    folders = {str(path.relative_to(root.path)) for path in root.path.rglob("*kvpipe*") if path.is_dir()}
    assert folders == {"etc/kvpipe", SITE.rpartition("/")[0]}
