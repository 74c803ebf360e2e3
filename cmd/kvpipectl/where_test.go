package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// TestPlaces: what is told on the command line is all that is looked at, then the environment; a socket for engines stands for the admin
// socket beside it.
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		flag, env, socket, engines string
		want                       []string
	}{
		{"/f/a", "/e/a", "/s/k", "/n/k", []string{"/f/a"}},
		{"", "/e/a", "/s/k", "/n/k", []string{"/e/a"}},
		{"", "", "/s/k", "/n/k", []string{"/s/admin.sock"}},
		{"", "", "", "/n/k", []string{"/n/admin.sock"}},
		{"", "", "", "", []string{"/run/kvpipe/admin.sock", "/x/kvpipe/admin.sock"}},
	} {
		t.Setenv("XDG_RUNTIME_DIR", "/x")
		t.Setenv("KVPIPE_ADMIN", c.env)
		t.Setenv("KVPIPE_SOCKET", c.engines)
		ctl := ctl{admin: c.flag, socket: c.socket}
		if got, refused := ctl.places(); !slices.Equal(got, c.want) || refused != nil {
			t.Errorf("%+v: looks at %q (%v)", c, got, refused)
		}
	}
}

// TestBesideTheSocketForEngines: whoever told engines where their daemon is need not say it again.
func TestBesideTheSocketForEngines(t *testing.T) {
	dir := shortDir(t)
	if err := os.Symlink(admintest.Serve(t, admintest.Example()), filepath.Join(dir, "admin.sock")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KVPIPE_ADMIN", "")
	t.Setenv("KVPIPE_SOCKET", filepath.Join(dir, "kvpiped.sock"))
	for _, command := range []string{"status", "doctor"} {
		if out, _ := ctlRun(t.Context(), command); !strings.Contains(out, "prefill-0") {
			t.Errorf("%s does not find the daemon: %s", command, out)
		}
	}
}

// TestEngineSocket: an admin socket that was named, and does not answer, still says where the socket for engines is.
func TestEngineSocket(t *testing.T) {
	dir := shortDir(t)
	beside := filepath.Join(dir, "kvpiped.sock")
	if err := os.WriteFile(beside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KVPIPE_ADMIN", filepath.Join(dir, "admin.sock"))
	for _, c := range []struct {
		env    string
		status *admin.Status
		want   string
	}{
		{"/n/k", &admin.Status{Socket: "/d/k"}, "/n/k"},
		{"", &admin.Status{Socket: "/d/k"}, "/d/k"},
		{"", nil, beside},
	} {
		t.Setenv("KVPIPE_SOCKET", c.env)
		if got, refused := new(ctl).engineSocket(c.status); got != c.want || refused != nil {
			t.Errorf("%+v: %s (%v)", c, got, refused)
		}
	}
}

// TestBrokenNamesACheckOnce, however many findings it has.
func TestBrokenNamesACheckOnce(t *testing.T) {
	err := broken([]finding{fine("socket", "x"), problem("peers", "mend", "b"), problem("peers", "mend", "c"), fine("peers", "d"), problem("daemon", "wait", "e")})
	if err == nil || err.Error() != "doctor: 2 of 3 checks found a problem: peers, daemon" {
		t.Error(err)
	}
}

// TestWhatCouldBeAStrangers is neither asked nor told anything, whoever listens there, and doctor says what the library says.
func TestWhatCouldBeAStrangers(t *testing.T) {
	if exists(config.Default().Socket) || exists(config.Default().Admin) {
		t.Skip("this machine has a daemon of the node, which is found first")
	}
	dir := shortDir(t)
	if err := os.Symlink(admintest.Serve(t, admintest.Example()), filepath.Join(dir, "admin.sock")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KVPIPE_ADMIN", "")
	t.Setenv("KVPIPE_SOCKET", "")
	why := errors.New(dir + " belongs to uid 7 with mode 0755, must be uid 7 with mode 0700")
	defer func(was func() (string, error)) { findDevDir = was }(findDevDir)
	for _, refused := range []error{nil, why} {
		findDevDir = func() (string, error) { return dir, refused }
		out, err := ctlRun(t.Context(), "status")
		if found := strings.Contains(out, "prefill-0"); found != (refused == nil) {
			t.Errorf("refused %v, and status says %q", refused, out)
		}
		if refused != nil && (err == nil || !strings.Contains(err.Error(), why.Error())) {
			t.Errorf("%v does not say why it looked nowhere else", err)
		}
		if out, _ = ctlRun(t.Context(), "doctor"); strings.Contains(out, "problem  socket: "+why.Error()) != (refused != nil) {
			t.Errorf("refused %v, and doctor says %q", refused, out)
		}
	}
	// Told where the daemon is, one looks there. An engine that is told nothing still does not.
	t.Setenv("KVPIPE_ADMIN", filepath.Join(dir, "admin.sock"))
	if got, refused := new(ctl).engineSocket(&admin.Status{Socket: filepath.Join(dir, "kvpiped.sock")}); !errors.Is(refused, why) {
		t.Errorf("%s, %v", got, refused)
	}
	t.Setenv("KVPIPE_SOCKET", filepath.Join(dir, "kvpiped.sock"))
	if got, refused := new(ctl).engineSocket(nil); refused != nil {
		t.Errorf("%s, %v", got, refused)
	}
}
