package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/sys"
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
		if got := ctl.places(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: looks at %q", c, got)
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
		why    string
	}{
		{"/n/k", &admin.Status{Socket: "/d/k"}, "/n/k", "KVPIPE_SOCKET names it"},
		{"", &admin.Status{Socket: "/d/k"}, "/d/k", "the daemon that was asked says so"},
		{"", nil, beside, "it is beside the admin socket that was named"},
	} {
		t.Setenv("KVPIPE_SOCKET", c.env)
		if got, why := new(ctl).engineSocket(c.status); got != c.want || why != c.why {
			t.Errorf("%+v: %s, because %s", c, got, why)
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

// twoUsual are usual folders of this test's own, each with a daemon that has this name.
func twoUsual(t *testing.T) (folders [2]string) {
	t.Helper()
	was := usual
	t.Cleanup(func() { usual = was })
	usual = func() [2]string { return folders }
	t.Setenv("KVPIPE_ADMIN", "")
	t.Setenv("KVPIPE_SOCKET", "")
	for i, name := range []string{"of-the-node", "of-the-user"} {
		folders[i] = shortDir(t)
		src := admintest.Example()
		src.S.Node = name
		engines := filepath.Join(folders[i], "kvpiped.sock")
		l, err := sys.ListenSeqpacket(engines, sys.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		src.S.Socket = engines
		if err := os.Symlink(admintest.Serve(t, src), filepath.Join(folders[i], "admin.sock")); err != nil {
			t.Fatal(err)
		}
	}
	return folders
}

// TestDoctorLooksWhereEnginesDo: at the first daemon that answers engines, also where only another one's admin socket is there; and says why there.
func TestDoctorLooksWhereEnginesDo(t *testing.T) {
	folders := twoUsual(t)
	sockets := [2]string{filepath.Join(folders[0], "kvpiped.sock"), filepath.Join(folders[1], "kvpiped.sock")}
	says := func(of string, words ...string) {
		t.Helper()
		out, _ := ctlRun(t.Context(), "doctor")
		for _, want := range words {
			if !strings.Contains(out, want) {
				t.Errorf("%s: doctor does not say %q:\n%s", of, want, out)
			}
		}
	}
	says("both", sockets[0]+" answers", "; it is the place of the node's service", "node of-the-node")
	if err := os.Remove(filepath.Join(folders[0], "admin.sock")); err != nil {
		t.Fatal(err)
	}
	says("the node's is not to be asked", sockets[0]+" answers", "it answers engines, but its admin socket is not at "+folders[0]+"/admin.sock\n")
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	says("the user's", sockets[1]+" answers", "; it is the place of kvpiped --dev, and "+sockets[0]+" is passed over: no such file or directory", "node of-the-user")
	t.Setenv("KVPIPE_SOCKET", sockets[0])
	says("told", sockets[0]+" does not exist; KVPIPE_SOCKET names it", "no daemon at "+folders[0]+"/admin.sock")
}

// TestUsualSocket: one that is not for this user is passed over, as libkvpipe does, and named where there is no other.
func TestUsualSocket(t *testing.T) {
	folders := twoUsual(t)
	for _, dir := range folders {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "kvpiped.sock"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	looks := func(want string, rank int, why string) {
		t.Helper()
		if os.Geteuid() == 0 { // who is refused nothing
			if err := syscall.Seteuid(65534); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Seteuid(0) }()
		}
		if got, because, r := usualSocket(); got != filepath.Join(want, "kvpiped.sock") || r != rank || !strings.Contains(because, why) {
			t.Errorf("%s (%d), because %s; want %s (%d), because %s", got, r, because, want, rank, why)
		}
	}
	shut := func(dir string) {
		t.Helper()
		if err := os.Chmod(filepath.Join(dir, "kvpiped.sock"), 0); err != nil {
			t.Fatal(err)
		}
	}
	looks(folders[0], answers, "the node's service")
	shut(folders[0])
	looks(folders[1], answers, "kvpiped --dev, and "+folders[0]+"/kvpiped.sock is passed over: permission denied")
	shut(folders[1])
	looks(folders[0], barred, "the node's service, and "+folders[1]+"/kvpiped.sock is passed over: permission denied")
}

// TestWhatCouldBeAStrangers is neither asked nor told anything, whoever listens there and whoever named it, and doctor says what the library says.
func TestWhatCouldBeAStrangers(t *testing.T) {
	was := config.Tmp
	defer func() { config.Tmp = was }()
	config.Tmp = shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := config.DevDir()
	folders := twoUsual(t)
	none := filepath.Join(config.Tmp, "none")
	if err := os.Rename(folders[1], dir); err != nil {
		t.Fatal(err)
	}
	usual = func() [2]string { return [2]string{none, dir} }
	socket, adminSocket := filepath.Join(dir, "kvpiped.sock"), filepath.Join(dir, "admin.sock")
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{}, {"--admin", adminSocket}, {"--socket", socket}} {
			if len(args) == 0 || args[0] == "--admin" {
				out, err := ctlRun(t.Context(), append([]string{"status"}, args...)...)
				if found := strings.Contains(out, "of-the-user"); found != good || !good && (err == nil || !strings.Contains(err.Error(), dir+" belongs to uid ")) {
					t.Errorf("%q, mode %v: status says %q, %v", args, mode, out, err)
				}
			}
			out, _ := ctlRun(t.Context(), append([]string{"doctor"}, args...)...)
			if strings.Contains(out, "problem  socket: "+dir+" belongs to uid ") == good || strings.Contains(out, "of-the-user") != good {
				t.Errorf("%q, mode %v: doctor says %q", args, mode, out)
			}
		}
	}
}
