"""The man pages say what there is: every function, key, command and flag, and nothing that man complains about."""

import os
import re
import subprocess

import header
import library
import pytest
import settings
from places import BIN, ROOT


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    subprocess.run(["python3", "-B", "packaging/man/make.py", BIN, folder, "1.2.3", "1700000000"], cwd=ROOT, check=True)
    return folder


def words(page):
    """The page without roff: names as they are read."""
    return re.sub(r"\\f[BRIP]", "", page.read_text()).replace("\\-", "-")


def says(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def test_every_function_has_a_page(pages):
    exported = {line.split("@")[0] for line in (ROOT / "capi/kvpipe.symbols").read_text().split()}
    assert exported == {path.name[:-2] for path in pages.glob("kvpipe_*.3")}
    for name in exported:
        assert re.search(rf"^\.SH SYNOPSIS.*\b{name}\(.*^\.SH DESCRIPTION.*\b{name}\(", words(pages / f"{name}.3"), re.M | re.S), name


def test_links_lead_to_pages(pages):
    for path in pages.iterdir():
        assert (pages / os.readlink(path) if path.is_symlink() else path).is_file()
        assert "1.2.3" in path.read_text() and "2023-11-14" in path.read_text()


def test_they_are_made_without_packages_too(pages, tmp_path):
    """`make man`: the same pages, each in the folder of its section, where its links hold."""
    made = ["make", "-s", "-o", "build-deps", "-o", "go-build", "man", f"BUILD={tmp_path}", f"BIN={BIN}"]
    subprocess.run(made, cwd=ROOT, check=True)
    found = {path.name: path for path in tmp_path.glob("man/man*/*")}
    assert found.keys() == {path.name for path in pages.iterdir()}
    for name, path in found.items():
        assert path.is_file() and path.parent.name == f"man{name[-1]}"
    assert "\n  man  " in says("make", "-C", str(ROOT), "help")


def test_every_comment_of_the_header_is_somewhere(pages):
    text = " ".join(" ".join(words(path) for path in pages.glob("*.3") if not path.is_symlink()).split())
    _, sections = header.read((ROOT / "include/kvpipe.h").read_text())
    for section in sections:
        for item in section.items:
            for word in re.findall(r"[A-Za-z_]{4,}", " ".join(item.comment)):
                assert word in text, f"{section.title}: {word!r} of its comment is in no page"


def test_a_section_without_a_page_is_an_error(tmp_path, monkeypatch):
    text = (ROOT / "include/kvpipe.h").read_text().replace("/* ---- about -", "/* ---- news -")
    copy = tmp_path / "kvpipe.h"
    copy.write_text(text)
    monkeypatch.setattr(library, "HERE", copy)
    with pytest.raises(SystemExit, match="news"):
        library.pages("2023-11-14", "1.2.3")


def test_every_key_is_described(pages, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = words(pages / "kvpiped.toml.5")
    keys = settings.keys()
    assert len(keys) == len(set(keys)) > 30
    for key in keys:
        assert re.search(rf"^{re.escape(key)} = ", text, re.M), key


def test_every_flag_of_kvpiped(pages):
    flags = re.findall(r"^  -(\S+)", says(BIN / "kvpiped", "--help"), re.M)
    text = words(pages / "kvpiped.8")
    assert "dev" in flags and "@" not in text
    for flag in flags:
        assert f"\n--{flag}" in text, flag


def commands(*words):
    text = says(BIN / "kvpipectl", "help", *words)
    yield words, text
    block = re.search(r"^Available Commands:\n((?:  .*\n)+)", text, re.M)
    for row in block[1].split("\n")[:-1] if block else []:
        if (name := row.split()[0]) not in ("help", "completion"):
            yield from commands(*words, name)


def test_every_command_and_flag_of_kvpipectl(pages):
    text = words(pages / "kvpipectl.1")
    seen = list(commands())
    assert len(seen) > 10
    for command, said in seen:
        if "Available Commands:" not in said:
            assert f".SS kvpipectl {' '.join(command)}" in text, command
        for flag in set(re.findall(r"--[a-z][a-z-]*", said)) - {"--help"}:
            assert flag in text, (command, flag)


def test_flags_of_all_commands_are_of_each(pages):
    section = re.search(r"^\.SH FLAGS OF ALL COMMANDS\n(.*?)^\.SH", words(pages / "kvpipectl.1"), re.M | re.S)[1]
    flags = re.findall(r"^(--[a-z-]+|-\w)", section, re.M)
    assert "--json" in flags
    for command, said in commands():
        missing = [flag for flag in flags if command and not re.search(rf"^ +(-\w, )?{flag}\b", said, re.M)]
        assert not missing, (command, missing)


def test_man_has_no_complaint(pages):
    files = sorted(path for path in pages.iterdir() if not path.is_symlink())
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
