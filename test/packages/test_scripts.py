"""Scripts that run on others' machines are for any sh. What they do is seen in test/rigs/packages.sh. And the rules that make packages."""

import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest
from places import ROOT

SCRIPTS = sorted(p for folder in ("nfpm/deb", "nfpm/rpm", "container", "systemd") for p in (ROOT / "packaging" / folder).iterdir()
                 if p.suffix in (".sh", ".postinst", ".prerm", ".postrm", ".pre", ".post", ".preun", ".postun"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_they_parse(path):
    subprocess.run(["sh", "-n", path], check=True)
    assert "[[" not in path.read_text()


# A systemd that notes what it is asked to do. Its units are files in enabled/ and active/.
SYSTEMCTL = """#!/bin/sh
for word; do case $word in -*) ;; *) words="$words $word" ;; esac; done
set -- $words
verb=$1
shift
case $verb in
is-enabled) [ -e enabled/$1 ] && echo enabled ;;
is-active) [ -e active/$1 ] ;;
start | restart) for unit; do echo "$verb $unit" >>asked && touch active/$unit; done ;;
esac
"""
# Debian's way to ask it: what is disabled is not started, and what runs all the same is restarted.
INVOKE = """#!/bin/sh
verb=$1
shift
for unit; do
	if [ -e enabled/$unit ] || [ "$verb" = restart -a -e active/$unit ]; then systemctl $verb $unit; fi
done
"""


ALL = "kvpiped.socket kvpiped-peer.socket kvpiped.service"
USUAL = "kvpiped.socket kvpiped.service"
# What was configured before, what is enabled, what is active, and what is asked for.
LIVES = {
    "an installation": ("", USUAL, "", "start kvpiped.socket, restart kvpiped.service"),
    "an upgrade": ("1.0", ALL, ALL, "restart kvpiped.service"),
    "an upgrade, the peers' socket not in use yet": ("1.0", ALL, USUAL, "restart kvpiped.service"),
    "back after a removal": ("1.0", ALL, "", "start kvpiped.socket, start kvpiped-peer.socket, restart kvpiped.service"),
    "back, with a daemon that its socket starts": ("1.0", "kvpiped.socket", "", "start kvpiped.socket"),
    "back, disabled": ("1.0", "", "", ""),
}


@pytest.mark.parametrize("before, enabled, active, asked", LIVES.values(), ids=LIVES)
def test_what_is_enabled_runs_after_installation(tmp_path, before, enabled, active, asked):
    """Sockets come before the daemon, which would open the peers' port itself. Those of one that runs are left alone."""
    text = (ROOT / "packaging/nfpm/deb/kvpiped.postinst").read_text()
    for folder in ("/run/systemd/system", "/usr/lib/systemd/system", "/etc/kvpipe", "/usr/share/kvpipe"):
        (tmp_path / folder[1:]).mkdir(parents=True)
        text = re.sub(rf"(?<=[\s=]){folder}", f"{tmp_path}{folder}", text)
    (tmp_path / "postinst").write_text(text)
    for name in ("kvpiped.socket", "kvpiped-peer.socket", "kvpiped.service"):
        shutil.copy(ROOT / "packaging/systemd" / name, tmp_path / "usr/lib/systemd/system")
    for folder, units in (("enabled", enabled), ("active", active)):
        (tmp_path / folder).mkdir()
        for unit in units.split():
            (tmp_path / folder / unit).touch()
    (tmp_path / "bin").mkdir()
    for name, program in (("systemctl", SYSTEMCTL), ("deb-systemd-invoke", INVOKE),
                          *((name, "#!/bin/sh\n") for name in ("systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper"))):
        (tmp_path / "bin" / name).write_text(program)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "asked").touch()
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    subprocess.run(["sh", "postinst", "configure", before], cwd=tmp_path, env=env, check=True, stderr=subprocess.DEVNULL)
    assert ", ".join((tmp_path / "asked").read_text().split("\n")[:-1]) == asked


def test_a_reload_needs_nothing_that_a_small_system_lacks(tmp_path):
    """Of Debian's, /bin/kill is procps'. The shell has one of its own."""
    unit = (ROOT / "packaging/systemd/kvpiped.service").read_text()
    reload = shlex.split(re.search(r"^ExecReload=(.*)$", unit, flags=re.M)[1])
    assert {reload[0], re.search(r"^ExecStart=(\S+)$", unit, flags=re.M)[1]} == {"/bin/sh", "/usr/bin/kvpiped"}
    daemon = subprocess.Popen(["sleep", "600"])
    try:
        subprocess.run(reload, env={"MAINPID": str(daemon.pid), "PATH": str(tmp_path)}, check=True)
        assert daemon.wait(60) == -signal.SIGHUP
    finally:
        daemon.kill()


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


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree of nothing but its version, within somebody's repository that has had releases.

    Where a hook of git runs the tests, GIT_DIR names the hook's repository, which is none of ours.
    """
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    repository(tmp_path, "v99.0.0")
    for file in ("packaging/version.sh", "scripts/version.sh", "VERSION", "CHANGELOG.md"):
        (tmp_path / "kvpipe" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / "kvpipe" / file)
    return tmp_path / "kvpipe"


def repository(folder, *tags):
    """All that is there is committed."""
    if not shutil.which("git"):
        pytest.skip("there is no git")
    git = ["git", "-C", folder, "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "all"], *(["tag", tag] for tag in tags)):
        subprocess.run(git + command, check=True)
    return subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()


def versions(tree):
    """What its packages would be called, and what its programs."""
    packages = subprocess.run([tree / "packaging/version.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    programs = subprocess.run([tree / "scripts/version.sh"], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    return packages, programs.strip()


NUMBER = (ROOT / "VERSION").read_text().strip()


def test_without_git_a_tree_is_the_release_that_it_says(tree):
    """As from a tarball, whatever it was unpacked in."""
    packages, programs = versions(tree)
    assert packages.returncode == 0 and f"PACKAGE_VERSION={NUMBER}\n" in packages.stdout
    assert programs == NUMBER


def test_a_tree_whose_commit_is_not_known_is_no_release(tree):
    (tree / ".git").write_text("gitdir: /nowhere\n")
    packages, programs = versions(tree)
    assert packages.returncode != 0 and packages.stdout == ""
    assert "/nowhere" in packages.stderr, "what git says"
    assert programs == f"{NUMBER}-dev"


def test_another_user_s_tree_is_called_after_its_commit(tree, monkeypatch):
    commit = repository(tree)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own
    assert subprocess.run(["git", "-C", tree, "rev-parse"], stderr=subprocess.DEVNULL).returncode != 0
    packages, programs = versions(tree)
    assert packages.returncode == 0 and f".g{commit}\n" in packages.stdout
    assert programs == f"{NUMBER}-dev+{commit}"


@pytest.mark.parametrize("own", [True, False], ids=["a repository of its own", "within another one"])
def test_a_wheel_has_what_git_knows_or_all_there_is(tree, own):
    (tree / "python/__pycache__").mkdir(parents=True)
    for name in ("known.py", "__pycache__/a.pyc"):
        (tree / "python" / name).touch()
    if own:
        (tree / ".gitignore").write_text("__pycache__\n")
        repository(tree)
        (tree / "python/left.py").touch()
    text = (ROOT / "packaging/wheel/make.sh").read_text()
    tracked = re.search(r"^tracked\(\) \{.*?^\}$", text, flags=re.M | re.S).group()
    said = subprocess.run(["bash", "-euc", f"{tracked}\ntracked python"], cwd=tree, check=True, stdout=subprocess.PIPE).stdout
    assert said == b"python/known.py\0"
