"""Scripts that run on others' machines are for any sh. What they do is seen in test/rigs/packages.sh. And the rules that make packages."""

import re
import subprocess

import pytest
from places import ROOT

SCRIPTS = sorted(p for folder in ("nfpm/deb", "nfpm/rpm", "container", "systemd") for p in (ROOT / "packaging" / folder).iterdir()
                 if p.suffix in (".sh", ".postinst", ".prerm", ".postrm", ".pre", ".post", ".preun", ".postun"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_they_parse(path):
    subprocess.run(["sh", "-n", path], check=True)
    assert "[[" not in path.read_text()


def test_the_guest_s_packages_are_beside_those_of_a_release():
    """build/packages is what SHA256SUMS lists."""
    said = subprocess.run(["make", "-n", "guest-packages"], cwd=ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    removed = re.findall(r"^(?:rm|mv) .*packages.*|.*packaging/nfpm/make.sh .*", said, flags=re.M)
    for line in removed:
        assert not re.search(r"build/packages/\S*\.(deb|rpm)", line), line
        assert "build/guest/packages/" in line
    assert len(removed) >= 8, "two versions, of each two formats"
