package daemon

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// passed is a socket that a service manager listens at.
type passed struct {
	name string
	file *os.File
}

// filer is a listener of package net.
type filer interface {
	net.Listener
	File() (*os.File, error)
}

// listening returns the socket of l, which stays open until the test ends, as that of a service manager does.
func listening(t *testing.T, name string, l net.Listener, err error) passed {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f, err := l.(filer).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return passed{name, f}
}

func clientsAt(t *testing.T, path string) passed {
	t.Helper()
	l, err := net.Listen("unixpacket", path)
	return listening(t, "client", l, err)
}

func peersAt(t *testing.T, addr string) passed {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	return listening(t, "peer", l, err)
}

// activate launches kvpiped with sockets, by the protocol of sd_listen_fds(3).
func activate(t *testing.T, sockets []passed, args ...string) *process {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, filepath.Join(bin, "kvpiped")}, args...)...)
	var names []string
	for _, s := range sockets {
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.file)
		names = append(names, s.name)
	}
	cmd.Env = append(os.Environ(), "LISTEN_FDS="+strconv.Itoa(len(sockets)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	return run(t, cmd)
}

// TestActivation: engines that connect while no daemon runs wait in the manager's socket and are served by the next one. The socket stays. Who
// connects meets the daemon: kvpipectl doctor looks at the limits of that process, not at the manager's.
func TestActivation(t *testing.T) {
	dir := tempDir(t)
	socket := filepath.Join(dir, "s")
	sockets := []passed{clientsAt(t, socket), peersAt(t, "127.0.0.1:0")}
	args := []string{"--dev", "--node", "a", "--state-dir", dir, "--ca", dir + "/ca", "--socket", socket, "--listen", "127.0.0.1:0"}
	for _, end := range []func(*process){
		func(p *process) { p.stop() },
		func(p *process) { _ = p.cmd.Process.Kill(); p.end() },
		func(p *process) { p.stop() },
	} {
		type joined struct {
			c   *sessiontest.Client
			err error
		}
		early := make(chan joined, 1)
		go func() {
			c, err := sessiontest.Dial(socket, sessiontest.Options{Engine: "e", TPWorld: 1, PPWorld: 1, Timeout: patience})
			early <- joined{c, err}
		}()
		p := activate(t, sockets, args...)
		p.await("msg=ready")
		j := <-early
		if j.err != nil {
			t.Fatalf("who connected before the daemon came: %v", j.err)
		}
		if s := ask[admin.Status](t, filepath.Join(dir, "admin.sock"), "status"); s.Counts.Sessions != 1 || s.Socket != socket {
			t.Errorf("status: %+v", s)
		}
		if who, err := listener(t, socket); err != nil || who.PID != p.cmd.Process.Pid {
			t.Errorf("process %d listens, %v; want %d, the daemon", who.PID, err, p.cmd.Process.Pid)
		}
		if got := fails(t, args...); !strings.Contains(got, "another kvpiped serves it") {
			t.Errorf("a second daemon: %s", got)
		}
		j.c.Kill()
		end(p)
		if st, err := os.Stat(socket); err != nil || st.Mode().Type() != os.ModeSocket {
			t.Fatalf("after the daemon's end: %v, %v", st, err)
		}
	}
}

// listener returns who listens at the engines' socket, by the kernel's word.
func listener(t *testing.T, socket string) (sys.Cred, error) {
	t.Helper()
	c, err := sys.DialSeqpacket(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return sys.PeerCred(c)
}

// TestActivationWithoutItsFile: where an administrator has emptied the folder, engines reach the next daemon all the same, and those after it.
func TestActivationWithoutItsFile(t *testing.T) {
	dir := tempDir(t)
	socket := filepath.Join(dir, "s")
	sockets := []passed{clientsAt(t, socket)}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(*process){
		func(p *process) { _ = p.cmd.Process.Kill(); p.end() }, // and leaves the file of its own socket
		func(p *process) { p.stop() },
	} {
		p := activate(t, sockets, "--dev", "--node", "a", "--state-dir", dir, "--ca", dir+"/ca", "--socket", socket, "--listen", "off")
		if line := p.await("until systemctl restart kvpiped.socket"); !strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
		p.await("msg=ready")
		c, err := sessiontest.Dial(socket, sessiontest.Options{Engine: "e", TPWorld: 1, PPWorld: 1, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		c.Kill()
		end(p)
	}
}

// TestBesideTheManager: a daemon that is run by hand leaves the socket alone at which the service manager listens for another.
func TestBesideTheManager(t *testing.T) {
	dir := tempDir(t)
	socket := filepath.Join(dir, "s")
	clientsAt(t, socket)
	got := fails(t, "--dev", "--node", "a", "--state-dir", dir, "--ca", dir+"/ca", "--socket", socket, "--listen", "off")
	if !strings.Contains(got, "somebody listens there") || !strings.Contains(got, "systemctl stop kvpiped.socket") {
		t.Error(got)
	}
	if c, err := net.Dial("unixpacket", socket); err != nil {
		t.Errorf("the manager's socket: %v", err)
	} else {
		_ = c.Close()
	}
}

// TestActivationThatDoesNotFit: a socket that is not the configured one is refused, with both.
func TestActivationThatDoesNotFit(t *testing.T) {
	dir := tempDir(t)
	socket := filepath.Join(dir, "s")
	stream, err := net.Listen("unix", filepath.Join(dir, "stream"))
	for name, c := range map[string]struct {
		sockets []passed
		listen  string
		want    string
	}{
		"another path":     {[]passed{clientsAt(t, filepath.Join(dir, "other"))}, "off", "the service manager listens at " + dir + `/other, and socket is "` + socket + `": give both the same path`},
		"a stream":         {[]passed{listening(t, "client", stream, err)}, "off", "kvpiped.socket needs ListenSequentialPacket=" + socket},
		"another address":  {[]passed{peersAt(t, "127.0.0.1:0")}, "127.0.0.1:1", `and listen is "127.0.0.1:1": give both the same address`},
		"peers are off":    {[]passed{peersAt(t, "127.0.0.1:0")}, "off", `and listen is "off": systemctl disable --now kvpiped-peer.socket, or set listen`},
		"two for one":      {[]passed{peersAt(t, "127.0.0.1:0"), peersAt(t, "127.0.0.1:0")}, "127.0.0.1:0", `passes 2 sockets named "peer"`},
		"an unknown name":  {[]passed{{"kvpiped.socket", peersAt(t, "127.0.0.1:0").file}}, "off", `FileDescriptorName= has to be "client" or "peer"`},
		"a unix for peers": {[]passed{{"peer", clientsAt(t, filepath.Join(dir, "third")).file}}, "127.0.0.1:1", "kvpiped-peer.socket needs ListenStream=127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := activate(t, c.sockets, "--dev", "--node", "a", "--state-dir", dir, "--ca", dir+"/ca", "--socket", socket, "--listen", c.listen)
			if code := p.end(); code != 1 || !strings.Contains(p.log(), c.want) {
				t.Errorf("exit code %d\n got %s\nwant %s", code, p.log(), c.want)
			}
		})
	}
}
