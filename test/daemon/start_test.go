package daemon

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// TestDevelopmentPair starts two daemons at once that share a directory for their CA: one makes it, both trust it.
func TestDevelopmentPair(t *testing.T) {
	dir := tempDir(t)
	busy := busyPort(t)
	first, second := launch(t, devArgs(dir, "a")...), launch(t, devArgs(dir, "b", "--peer", "nobody="+busy)...)
	a, b := first.attr("listen"), second.attr("listen")
	second.stop()
	second = dev(t, dir, "b", "--peer", "a="+a)
	if b == a {
		t.Fatalf("both listen on %s", a)
	}
	atB := filepath.Join(dir, "b", "admin.sock")
	out := ctl(t, atB, "bench", "a", "--seconds", "0.001", "--sizes", "1048576")
	if n := strings.Count(out, "GB/s"); n != 2 {
		t.Errorf("bench has %d rows with numbers, want 2:\n%s", n, out)
	}
	peers := ask[[]admin.Peer](t, atB, "peers")
	if len(peers) != 1 || peers[0].Node != "a" || peers[0].State != "up" || !peers[0].Secure || peers[0].Transport != "tcp" {
		t.Errorf("b's peers: %+v", peers)
	}
	if out := ctl(t, atB, "explain", "a"); !strings.HasPrefix(out, "a: tcp") || !strings.Contains(out, "local  refused") {
		t.Errorf("explain a:\n%s", out)
	}
	first.stop()
	second.stop()
}

// TestSockets: who may connect, and what is left of them.
func TestSockets(t *testing.T) {
	dir := tempDir(t)
	p := dev(t, dir, "a")
	home := filepath.Join(dir, "a")
	for name, want := range map[string]os.FileMode{".": 0o700, "kvpiped.sock": 0o600, "admin.sock": 0o600} {
		if st, err := os.Stat(filepath.Join(home, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", name, st, err, want)
		}
	}
	p.stop()
	if left := files(t, home); left != "kvpiped.sock.lock" { // a lock that goes away would not be one
		t.Errorf("left behind: %s", left)
	}

	file := write(t, filepath.Join(dir, "k.toml"), "node = \"n\"\nlisten = \"off\"\nmetrics = \"off\"\nsocket = %q\nadmin = %q\n", filepath.Join(dir, "s"), filepath.Join(dir, "m"))
	p = start(t, "--config", file)
	for name, want := range map[string]os.FileMode{"s": 0o660, "m": 0o600} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", name, st, err, want)
		}
	}
	p.stop()
}

func files(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name())
	}
	return strings.Join(names, " ")
}

// TestTaken: what another daemon or program has is not taken from it, and the error says what to do.
func TestTaken(t *testing.T) {
	dir := tempDir(t)
	p := dev(t, dir, "a")
	socket := filepath.Join(dir, "a", "kvpiped.sock")
	if got, want := fails(t, devArgs(dir, "a")...), "kvpiped: socket "+socket+": another kvpiped serves it: a second one needs --listen and --state-dir of its own"; !strings.HasPrefix(got, want) {
		t.Errorf("a second daemon: %s", got)
	}
	busy := busyPort(t)
	if got, want := fails(t, devArgs(dir, "b", "--listen", busy)...), `kvpiped: listen: "`+busy+`" is in use by daemon.test (PID `+strconv.Itoa(os.Getpid())+`): a second kvpiped on a machine needs --listen 127.0.0.1:0, which takes a free port, or another --listen HOST:PORT`; !strings.HasPrefix(got, want) {
		t.Errorf("a port in use: %s", got)
	}
	blocked := write(t, filepath.Join(dir, "file"), "mine")
	if got := fails(t, devArgs(dir, "c", "--socket", blocked)...); !strings.Contains(got, "it is not a socket") {
		t.Errorf("a file where the socket belongs: %s", got)
	}
	if b, err := os.ReadFile(blocked); err != nil || string(b) != "mine" {
		t.Errorf("the file has changed: %q, %v", b, err)
	}
	control := filepath.Join(dir, "a", "admin.sock")
	if got := fails(t, devArgs(dir, "d", "--admin", control)...); !strings.HasPrefix(got, "kvpiped: admin: somebody listens at "+control+": another kvpiped? Give another --admin PATH") {
		t.Errorf("the admin socket of another daemon: %s", got)
	}
	for _, args := range [][]string{{"--admin", socket}, {"--socket", control}} {
		if got := fails(t, devArgs(dir, "e", args...)...); !strings.Contains(got, "somebody listens") {
			t.Errorf("%q, another daemon's: %s", args, got)
		}
	}
	if s := ask[admin.Status](t, control, "status"); s.State != "running" || s.Node != "a" {
		t.Errorf("the first daemon: %+v", s)
	}
	p.stop()
}

// TestPortsOfOthers: in service a daemon whose ports others have says who, serves its node, and opens them when they are free.
func TestPortsOfOthers(t *testing.T) {
	dir := tempDir(t)
	var busy []net.Listener
	for range 2 {
		// At an address that nobody else uses: at 127.0.0.1 the system may give the port to a connection once it is free.
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		busy = append(busy, l)
	}
	listen, metrics, at := busy[0].Addr().String(), busy[1].Addr().String(), filepath.Join(dir, "m")
	file := write(t, filepath.Join(dir, "k.toml"), "node = \"n\"\ninsecure = true\nlisten = %q\nmetrics = \"127.0.0.1:1\"\nsocket = %q\nadmin = %q\n[gpu]\nnvml = \"off\"\n", listen, filepath.Join(dir, "s"), at)
	p := start(t, "--config", file, "--metrics", metrics) // flags win
	me := "is in use by daemon.test (PID " + strconv.Itoa(os.Getpid()) + ")"
	for _, key := range []string{"listen", "metrics"} {
		if line := p.await(key + ": "); !strings.Contains(line, "level=ERROR") || !strings.Contains(line, me) {
			t.Errorf("a port of %s that this process has: %s", key, line)
		}
	}
	if out := ctl(t, at, "bench", "--seconds", "0.001", "--sizes", "4096"); !strings.Contains(out, "GB/s") {
		t.Errorf("within the node nothing moves:\n%s", out)
	}
	if got := fails(t, "--config", file); !strings.Contains(got, "another kvpiped serves it: stop it, or give this one socket, admin, listen and metrics of its own") {
		t.Errorf("a second daemon: %s", got)
	}
	s := ask[admin.Status](t, at, "status")
	if all := strings.Join(s.Warnings, "\n"); s.State != "running" || !strings.Contains(all, "listen: ") || !strings.Contains(all, "metrics: ") {
		t.Errorf("status: %s, %q", s.State, s.Warnings)
	}
	for _, l := range busy {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for key, addr := range map[string]string{"listen": listen, "metrics": metrics} {
		p.await("msg=\"listening after all\" key=" + key)
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	p.stop()
}

// TestKilled: one that died leaves sockets; the next takes their place.
func TestKilled(t *testing.T) {
	dir := tempDir(t)
	p := dev(t, dir, "a")
	p.signal(syscall.SIGKILL)
	p.end()
	if left := files(t, filepath.Join(dir, "a")); !strings.Contains(left, "kvpiped.sock") || !strings.Contains(left, "admin.sock") {
		t.Fatalf("left behind: %s", left)
	}
	p = dev(t, dir, "a")
	if s := ask[admin.Status](t, filepath.Join(dir, "a", "admin.sock"), "status"); s.Node != "a" {
		t.Errorf("status: %+v", s)
	}
	p.stop()
}

// TestFilesOfAnotherUser: what root has left behind by hand keeps the service's user from running, who says what to do.
func TestFilesOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: no files of another user can be made")
	}
	const nobody = 65534
	dir := tempDir(t)
	home := filepath.Join(dir, "run")
	file := write(t, filepath.Join(dir, "k.toml"), "node = \"n\"\nlisten = \"off\"\nmetrics = \"off\"\nsocket = %q\nadmin = %q\n", filepath.Join(home, "s"), filepath.Join(home, "m"))
	program, err := os.ReadFile(filepath.Join(bin, "kvpiped"))
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "kvpiped"), program, 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "kvpiped"), 0o755), os.Mkdir(home, 0o755), os.Chown(home, nobody, nobody))
	if err != nil {
		t.Fatal(err)
	}
	as := func() *process {
		cmd := exec.Command(filepath.Join(dir, "kvpiped"), "--config", file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return run(t, cmd)
	}
	refused := func(want string) {
		t.Helper()
		if p := as(); p.end() != 1 || !strings.Contains(p.log(), want) {
			t.Errorf("want %q:\n%s", want, p.log())
		}
	}
	refused("k.toml: permission denied: user 65534, who runs this kvpiped, has to be let read it")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, "--config", file).stop()
	refused("s.lock: permission denied: user 0 has run a kvpiped here: when it has ended, remove that file")
	if err := os.Remove(filepath.Join(home, "s.lock")); err != nil {
		t.Fatal(err)
	}
	p := as()
	p.await("msg=ready")
	p.stop()
}

// TestHealth: what a load balancer or kubelet asks.
func TestHealth(t *testing.T) {
	dir := tempDir(t)
	p := dev(t, dir, "a")
	s := ask[admin.Status](t, filepath.Join(dir, "a", "admin.sock"), "status")
	for path, want := range map[string]string{"/health": "ok\n", "/metrics": "kvpipe_build_info"} {
		if got := fetch(t, "http://"+s.Metrics+path); !strings.Contains(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	p.stop()
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFlags: what the command line says and refuses.
func TestFlags(t *testing.T) {
	for _, flag := range []string{"--version", "--help"} {
		out, err := exec.Command(filepath.Join(bin, "kvpiped"), flag).Output()
		if err != nil || !strings.Contains(string(out), "kvpiped ") {
			t.Errorf("%s: %q, %v", flag, out, err)
		}
	}
	dir := tempDir(t)
	none := filepath.Join(dir, "none.toml")
	for _, c := range []struct{ args, want string }{
		{"--sockt x", "kvpiped: flag provided but not defined: -sockt: kvpiped --help lists the flags"},
		{"--dev extra", `kvpiped: unexpected argument "extra": kvpiped takes flags alone, see --help`},
		{"--peer b --dev", `kvpiped: invalid value "b" for flag -peer: give NAME=HOST:PORT: kvpiped --help lists the flags`},
		{"--state-dir x", "kvpiped: --state-dir goes with --dev; otherwise set socket and admin in the configuration"},
		{"--ca x", "kvpiped: --ca goes with --dev; otherwise set tls.ca, tls.cert and tls.key in the configuration"},
		{"--config " + none, "kvpiped: read configuration: open " + none + ": no such file or directory: name one that is there with --config, write one (packaging/kvpiped.toml is a commented sample), or try \"kvpiped --dev\""},
		{"--dev --node a/b --state-dir " + dir + " --ca " + dir, `kvpiped: node: "a/b": give a name without spaces and slashes`},
		{"--dev --listen 7650 --state-dir " + dir + " --ca " + dir, "kvpiped: configuration:\nlisten: \"7650\": give host:port or \"off\" (address 7650: missing port in address)"},
	} {
		if got := fails(t, strings.Fields(c.args)...); got != c.want {
			t.Errorf("kvpiped %s:\n got %s\nwant %s", c.args, got, c.want)
		}
	}
}
