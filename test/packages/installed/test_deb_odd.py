"""The Debian packages where an administrator has been before: users, files, mounts and services that the scripts did not make."""

import pytest
from places import ROOT
from roots import package

CONF = "/etc/kvpipe/kvpiped.toml"
SITE = "/usr/lib/systemd/system/kvpiped.service.d/site.conf"
WANTS = "/etc/systemd/system/multi-user.target.wants/kvpiped.service"


@pytest.fixture(scope="module")
def root(new_root):
    """With the package, where a person is called like its user, and something of /usr is left out (dpkg.cfg(5), path-exclude)."""
    root = new_root()
    root.run("useradd --no-create-home --home-dir /srv --gid users --shell /bin/bash kvpipe")
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text("path-exclude=/usr/share/kvpipe/*\npath-exclude=/usr/share/doc/*\n")
    root.run(f"sh {root.bring(ROOT / 'packaging/container/install.sh', package('kvpiped', 'deb'), package('kvpipectl', 'deb'))}/install.sh")
    (root / "etc/dpkg/dpkg.cfg.d/slim").unlink()
    return root


@pytest.fixture
def install(root):
    name = package("kvpiped", "deb").name
    return f"dpkg --install --force-confmiss --force-confold {root.bring(package('kvpiped', 'deb'))}/{name}"


def test_a_user_of_that_name_is_left_as_he_is(root):
    assert root.run("getent passwd kvpipe").split(":")[3:] == ["100", "", "/srv", "/bin/bash\n"]
    assert root.run(f"stat -c '%a %U %G' {CONF} /run/kvpipe") == "640 root kvpipe\n755 kvpipe kvpipe\n"


def test_a_configuration_that_was_deleted_is_readable_when_it_is_back(root, install):
    root.run(f"rm {CONF}; {install}")
    assert root.run(f"stat -c '%a %U %G' {CONF}") == "640 root kvpipe\n"


def test_a_configuration_that_was_closed_stays_closed(root, install):
    root.run(f"chown kvpipe:root {CONF}; chmod 600 {CONF}; {install}")
    assert root.run(f"stat -c '%a %U %G' {CONF}") == "600 kvpipe root\n"


def test_a_service_that_was_disabled_stays_so(root, install):
    assert (root / WANTS[1:]).is_symlink()
    root.run(f"rm {WANTS}; {install}")
    assert not (root / WANTS[1:]).is_symlink()


def test_a_drop_in_of_the_site_stays(root, install):
    root.run(f"mkdir -p $(dirname {SITE}); touch {SITE}; {install}; dpkg --remove kvpiped; rm {SITE}; rmdir $(dirname {SITE}); {install}")


def test_purge_leaves_the_folder_and_certificates_of_a_daemon_that_is_not_the_package_s(root, install):
    """Such as one in a container."""
    root.run(f"{install}; cd /etc/kvpipe && touch ca.crt $(uname -n).crt $(uname -n).key")
    said = root.run("flock /run/kvpipe/kvpiped.sock.lock dpkg --purge kvpiped")
    assert "/run/kvpipe and certificates are left: another kvpiped serves engines there" in said
    assert (root / "run/kvpipe/kvpiped.sock.lock").exists()
    assert root.run("cd /etc/kvpipe && rm ca.crt $(uname -n).crt $(uname -n).key; ls") == ""


def test_purge_gets_by_mounts(root, install):
    folders = "/run/kvpipe /var/lib/kvpipe"
    root.run(f"{install}; for folder in {folders}; do mkdir -p $folder; mount -t tmpfs none $folder; done; dpkg --purge kvpiped")


def test_purge_leaves_a_ca(root, install):
    """And nothing that it can make again."""
    root.run(install)
    root.run("cd /etc/kvpipe && kvpipectl certs init --ca . && kvpipectl certs node $(uname -n) --ca .")
    assert "left with their certificates: /etc/kvpipe/ca.key: without a CA's key" in root.run("dpkg --purge kvpiped")
    assert {path.name for path in (root / "etc/kvpipe").iterdir()} == {"ca.crt", "ca.key"}
    root.run("kvpipectl certs node here --ca /etc/kvpipe")


def test_purge_leaves_keys_that_are_not_the_node_s(root, install):
    """A CA may have another name, and a key may be of anything."""
    others = {"site-ca.crt", "site-ca.key", "proxy.key"}
    root.run(f"{install}; cd /etc/kvpipe && rm -f *.crt *.key && touch ca.crt {' '.join(sorted(others))} $(uname -n).crt $(uname -n).key")
    assert "left with their certificates: /etc/kvpipe/proxy.key /etc/kvpipe/site-ca.key: " in root.run("dpkg --purge kvpiped")
    assert {path.name for path in (root / "etc/kvpipe").iterdir()} == others | {"ca.crt"}
