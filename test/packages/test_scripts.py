"""Scripts that run on others' machines are for any sh. What they do is seen in test/rigs/packages.sh."""

import subprocess

import pytest
from places import ROOT

SCRIPTS = sorted(p for folder in ("nfpm/deb", "nfpm/rpm", "container", "systemd") for p in (ROOT / "packaging" / folder).iterdir()
                 if p.suffix in (".sh", ".postinst", ".prerm", ".postrm", ".pre", ".post", ".preun", ".postun"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_they_parse(path):
    subprocess.run(["sh", "-n", path], check=True)
    assert "[[" not in path.read_text()
