"""What the packages install to be read: where a link in it leads is installed too, or elsewhere by a whole address."""

import gzip
import re
import subprocess

import pytest
from places import ROOT

LAY = """
set -euo pipefail
shopt -s nullglob
umask 022
format=%s out=$1 doc=$2 built=$1/built work=$1/work libdir=/usr/lib64 soversion=0.0 number=0 PACKAGE_VERSION=0 EPOCH=0
install -d "$work" "$built/bin" "$built/lib"
touch "$built"/bin/{kvpiped,kvpipectl} "$built"/{kvpiped,kvpipectl}.licences "$built"/lib/libkvpipe.{so.0,a}
. packaging/nfpm/layout.sh
lay_kvpiped "$out/kvpiped"
lay_kvpipectl "$out/kvpipectl"
lay_library "$out/library" libkvpipe
lay_devel "$out/devel" libkvpipe-devel
"""


@pytest.fixture(scope="module")
def doc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doc")
    subprocess.run(["packaging/doc.sh", folder], cwd=ROOT, check=True)
    return folder


@pytest.fixture(params=["deb", "rpm"])
def packages(request, doc, tmp_path):
    """Each package as it is laid out; programs and libraries are empty files."""
    subprocess.run(["bash", "-c", LAY % request.param, "lay", tmp_path, doc], cwd=ROOT, check=True)
    return [tmp_path / name for name in ("kvpiped", "kvpipectl", "library", "devel")]


def documents(root):
    for path in sorted((root / "usr/share/doc").rglob("*")):
        if path.is_file():
            yield path, gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def anchors(text):
    """The names of a page's headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ +(.*)$", text, re.M)}


def test_links_lead_to_what_the_package_installs(packages):
    inside = 0
    for root in packages:
        for path, text in documents(root):
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"https?://", link):
                    continue
                name, _, anchor = link.partition("#")
                target = root / name[1:] if name.startswith("/") else path.parent / name if name else path
                assert target.is_file(), f"{path.relative_to(root)} links to {link}, which {root.name} does not install"
                assert not anchor or anchor in anchors(target.read_text()), f"{path.relative_to(root)}: {link}: no such heading"
                inside += 1
    assert inside > 10


def test_the_pages_are_installed_and_named(packages):
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert "operating.md" in pages
    assert pages <= {path.name for path, _ in documents(packages[0])}
    manual = gzip.decompress((packages[0] / "usr/share/man/man8/kvpiped.8.gz").read_bytes()).decode().replace("\\-", "-")
    named = re.findall(r"/usr/share/doc/\S+", manual)
    assert named
    for path in named:
        assert (packages[0] / path[1:]).is_file(), path
