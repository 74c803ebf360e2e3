"""Scripts that run on others' machines are for any sh. What they do is seen in test/rigs/packages.sh. And the rules that make packages."""

import re
import shutil
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
    compiled = r"-f build/packages/amd64/lib/libkvpipe\.a$"  # is made anew where it has not been made yet
    removed = re.findall(rf"^(?:rm|mv) (?!{compiled}).*packages.*|.*packaging/nfpm/make.sh .*", said, flags=re.M)
    for line in removed:
        assert not re.search(r"build/packages/\S*\.(deb|rpm)", line), line
        assert "build/guest/packages/" in line
    assert len(removed) >= 8, "two versions, of each two formats"


def test_the_rig_waits_for_both_of_its_halves(tmp_path):
    """Here the tests fail while packages are still made again."""
    for file in (ROOT / "Makefile", *ROOT.glob("scripts/mk/*"), *ROOT.glob("test/*/*.mk")):
        (tmp_path / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / file.relative_to(ROOT))
    for name, script in (("packaging/again.sh", "until [ -e failed ]; do sleep 0.1; done; sleep 1; touch made-again"),
                         ("venv/bin/python", "touch failed; exit 3")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    rig = ["make", "-s", "-o", "packages", "-o", "packages-rig-deps", "packages-rig", "VENV=venv", "NUMBER=1", "VERSION=1"]
    with open(tmp_path / "log", "w") as log:  # a pipe would be waited for as well
        subprocess.run(rig, cwd=tmp_path, stdout=log, stderr=log)
    assert (tmp_path / "made-again").exists()
    assert "packages-rig] Error 3" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("git", [None, "gitdir: /nowhere\n"], ids=["no git", "git that does not answer"])
def test_a_tree_whose_commit_is_not_known_is_no_release(tmp_path, git):
    """Such as another user's, in a container. Without any git, as from a tarball, it is the release that it says."""
    for file in ("packaging/version.sh", "scripts/version.sh", "VERSION", "CHANGELOG.md"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    if git:
        (tmp_path / ".git").write_text(git)
    number = (ROOT / "VERSION").read_text().strip()
    packages = subprocess.run([tmp_path / "packaging/version.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    programs = subprocess.run([tmp_path / "scripts/version.sh"], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    if git:
        assert packages.returncode != 0 and packages.stdout == ""
        assert f"safe.directory {tmp_path}" in packages.stderr
        assert programs == f"{number}-dev\n"
    else:
        assert packages.returncode == 0 and f"PACKAGE_VERSION={number}\n" in packages.stdout
        assert programs == f"{number}\n"
