package daemon

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// check runs kvpiped --check-config.
func check(t *testing.T, file string) (string, error) {
	t.Helper()
	out, err := exec.Command(filepath.Join(bin, "kvpiped"), "--check-config", "--config", file).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestCheckConfig(t *testing.T) {
	dir := tempDir(t)
	ca := filepath.Join(dir, "ca")
	ctl(t, "", "certs", "init", "--ca", ca)
	ctl(t, "", "certs", "node", "n", "--ca", ca)
	tls := "[tls]\nca = \"" + ca + "/ca.crt\"\ncert = \"" + ca + "/n.crt\"\nkey = \"" + ca + "/n.key\"\n"
	for name, c := range map[string]struct{ text, want string }{
		"good":        {"node = \"n\"\n" + tls, "ok"},
		"sample":      {sample(t) + "\n", "tls.ca: missing"},
		"unknown key": {"nod = \"n\"\n" + tls, `line 1: unknown key "nod"; did you mean "node"?`},
		"wrong type":  {"node = \"n\"\n[tcp]\nstreams = \"2\"\n", "line 3: tcp.streams: a text in quotes where a whole number belongs"},
		"two errors":  {"node = \"n\"\ncrc = \"x\"\n[tcp]\nstreams = 0\n" + tls, "crc: \"x\": give one of auto, on, off\ntcp.streams: 0: give 1 to 64"},
		"other node":  {"node = \"m\"\n" + tls, `is the certificate of node "n", but this node is "m": set node, or issue one with "kvpipectl certs node m"`},
		"no file":     {"node = \"n\"\n" + strings.Replace(tls, "n.key", "gone.key", 1), "gone.key: no such file or directory"},
		"not a file":  {"node = \"n\"\n" + strings.Replace(tls, "n.crt", "n.key", 1), "n.key"},
	} {
		file := write(t, filepath.Join(dir, "k.toml"), "%s", c.text)
		out, err := check(t, file)
		if (err == nil) != (c.want == "ok") || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, out, c.want)
		}
		if left := files(t, dir); left != "ca k.toml" {
			t.Errorf("%s: a check leaves %s", name, left)
		}
	}
}

func sample(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../packaging/kvpiped.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestGroupThatDoesNotExist is the one reason to end: nothing is said of a port that others have.
func TestGroupThatDoesNotExist(t *testing.T) {
	dir := tempDir(t)
	file := write(t, filepath.Join(dir, "k.toml"), "node = \"n\"\ninsecure = true\nlisten = %q\nmetrics = \"off\"\ngroup = \"no-such-group\"\nsocket = %q\nadmin = %q\n", busyPort(t), filepath.Join(dir, "s"), filepath.Join(dir, "m"))
	if got, want := fails(t, "--config", file), "kvpiped: group: unknown group no-such-group in /etc/group: create it there, or give the number of one that is kept elsewhere (getent group no-such-group)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCheckFlags: without a file the flags are checked alone.
func TestCheckFlags(t *testing.T) {
	dir := tempDir(t)
	out, err := exec.Command(filepath.Join(bin, "kvpiped"), "--dev", "--check-config", "--state-dir", dir, "--ca", dir).CombinedOutput()
	if err != nil || string(out) != "the flags: ok\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestReload: SIGHUP says what has changed and what needs a restart, and survives a bad file.
func TestReload(t *testing.T) {
	dir := tempDir(t)
	file := filepath.Join(dir, "k.toml")
	base := "node = \"n\"\nlisten = \"off\"\nmetrics = \"off\"\nsocket = \"" + dir + "/s\"\nadmin = \"" + dir + "/m\"\n"
	write(t, file, "%s", base)
	p := start(t, "--config", file)
	write(t, file, "%s", base+"poll_mode = \"busy\"\n[log]\nlevel = \"debug\"\n[limits]\nsessions = 7\n[tcp]\nstreams = 3\n")
	p.signal(syscall.SIGHUP)
	if got := p.await("msg=reloaded"); !strings.HasSuffix(got, `changed="[limits.sessions log.level]"`) {
		t.Errorf("reloaded: %s", got)
	}
	if got := p.await("need a restart"); !strings.HasSuffix(got, `keys="[poll_mode tcp.streams]"`) {
		t.Errorf("restart: %s", got)
	}
	write(t, file, "%s", base+"[limits]\nsesions = 7\n")
	p.signal(syscall.SIGHUP)
	if got := p.await("the configuration stays as it was"); !strings.Contains(got, `did you mean \"limits.sessions\"?`) {
		t.Errorf("a bad file: %s", got)
	}
	if s := ask[admin.Status](t, filepath.Join(dir, "m"), "status"); s.State != "running" || s.PollMode != "event" {
		t.Errorf("status: %+v", s)
	}
	p.stop()
}

// TestReloadThatHangs: a file that is not read to its end, as on a file system that does not answer, keeps nobody from stopping the daemon.
func TestReloadThatHangs(t *testing.T) {
	dir := tempDir(t)
	file := write(t, filepath.Join(dir, "k.toml"), "metrics = \"off\"\n")
	p := dev(t, dir, "a", "--config", file)
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	w, err := os.OpenFile(file, os.O_WRONLY, 0) // returns when the daemon reads
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p.stop()
}
