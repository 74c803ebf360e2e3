package guest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/test/cluster"
)

var (
	tree  = flag.String("tree", "", "the source tree with what was built in it; this machine is a guest that may be spoilt")
	times = flag.Int("restarts", 20, "how often the daemon is restarted or killed under its engines")
)

const (
	socket  = "/run/kvpipe/kvpiped.sock"
	service = "kvpiped.service"
	config  = "/etc/kvpipe/kvpiped.toml"
)

// TestSystemd is one life of an installation; each step begins where the one before ended.
func TestSystemd(t *testing.T) {
	if *tree == "" {
		t.Skip("-tree is not given: make test-systemd runs it, in a guest")
	}
	cluster.Patience = 3 * time.Minute // emulated, on a machine that may be busy
	g := &guest{t: t, before: files(t), ctl: admin.NewClient("/run/kvpipe/admin.sock")}
	for _, step := range []struct {
		name string
		run  func(*guest)
	}{
		{"install", (*guest).install},
		{"hand over", (*guest).handOver},
		{"reload", (*guest).reload},
		{"restart and kill", (*guest).restarts},
		{"watchdog", (*guest).watchdog},
		{"peers", (*guest).peers},
		{"upgrade and back", (*guest).upgrades},
		{"administrator", (*guest).administrator},
		{"rdma", (*guest).rdma},
		{"purge", (*guest).purge},
		{"rpm", (*guest).rpm},
	} {
		began := time.Now()
		if !t.Run(step.name, func(t *testing.T) { g.step = t; step.run(g) }) || t.Failed() {
			t.Logf("journal:\n%s", try("journalctl", "-u", "kvpiped*", "-n", "80", "--no-pager", "-o", "short-monotonic"))
			t.Fatalf("%s failed", step.name)
		}
		t.Logf("%s: %.0f s", step.name, time.Since(began).Seconds())
	}
}

// guest is the machine, and the engines on it that outlive a step.
type guest struct {
	t, step         *testing.T // the whole, and the step at hand
	before          map[string]bool
	ctl             *admin.Client
	prefill, decode *cluster.Engine
}

// run returns what a command says; it has to succeed.
func (g *guest) run(name string, args ...string) string {
	g.step.Helper()
	began := time.Now()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		g.step.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	if took := time.Since(began); took > 5*time.Second {
		g.step.Logf("%s %s: %.0f s", name, strings.Join(args, " "), took.Seconds())
	}
	return strings.TrimSpace(string(out))
}

// try returns what a command says, whatever becomes of it.
func try(name string, args ...string) string {
	out, _ := exec.Command(name, args...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// show is a property of the service.
func (g *guest) show(property string) string {
	g.step.Helper()
	return g.run("systemctl", "show", "-p", property, "--value", service)
}

func (g *guest) eventually(what string, ok func() bool) {
	g.step.Helper()
	cluster.Eventually(g.step, what, ok, func() string { return try("systemctl", "status", "--no-pager", service) })
}

// says waits for a record of the service's journal, of its present run alone.
func (g *guest) says(text string, match ...string) {
	g.step.Helper()
	args := append([]string{"-u", service, "--no-pager", "-o", "cat", "_SYSTEMD_INVOCATION_ID=" + g.show("InvocationID")}, match...)
	g.eventually("the journal says "+text, func() bool { return strings.Contains(try("journalctl", args...), text) })
}

// packages installs what lies in build/guest/packages, "now" or "next", over what is there.
func (g *guest) packages(which string) {
	g.step.Helper()
	args := append([]string{"DEBIAN_FRONTEND=noninteractive", "dpkg", "--install", "--force-downgrade"}, g.made(which, "*.deb", 3)...)
	if out := g.run("env", args...); strings.Contains(out, "rror") {
		g.step.Errorf("dpkg --install complains:\n%s", out)
	}
}

// made are the packages of a kind.
func (g *guest) made(which, kind string, n int) []string {
	g.step.Helper()
	all, err := filepath.Glob(filepath.Join(*tree, "build/guest/packages", which, kind))
	if err != nil || len(all) != n {
		g.step.Fatalf("packages: %v, %v", all, err)
	}
	return all
}

// edit replaces a line of the configuration.
func (g *guest) edit(old, text string) {
	g.step.Helper()
	b, err := os.ReadFile(config)
	if err != nil || strings.Count(string(b), old) != 1 {
		g.step.Fatalf("%q is not once in the configuration: %v", old, err)
	}
	if err := os.WriteFile(config, []byte(strings.Replace(string(b), old, text, 1)), 0o640); err != nil {
		g.step.Fatal(err)
	}
}

// engine describes an engine at a daemon's socket that runs as a user of its own, in the daemon's group.
func (g *guest) engine(role, name, socket string, group int, heard func(string, []string)) *cluster.Engine {
	e := cluster.NewEngine(g.t, role, &cluster.Node{T: g.t, Name: name, Socket: socket}, heard)
	e.As = &syscall.Credential{Uid: 65534, Gid: uint32(group)}
	return e
}

// start starts an engine that leaves the processor to others: it would take all there is.
func (g *guest) start(e *cluster.Engine, cancels int) {
	g.step.Helper()
	e.Start(cancels)
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, e.Cmd.Process.Pid, 19); err != nil {
		g.step.Fatal(err)
	}
}

// another waits for a daemon that is not the process pid and is ready.
func (g *guest) another(pid string) {
	g.step.Helper()
	g.eventually("another daemon is ready", func() bool {
		now := strings.Fields(g.run("systemctl", "show", "-p", "MainPID", "-p", "ActiveState", "--value", service))
		return len(now) == 2 && now[0] != pid && now[0] != "0" && now[1] == "active"
	})
}

// flowing waits until n more requests have been handed over, right in every word.
func flowing(decode *cluster.Engine, n int) { decode.Waits("ok", decode.Count("ok")+n) }

// files lists what lies in the folders that packages and services write to.
func files(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, root := range []string{
		"/etc/kvpipe", "/etc/systemd/system", "/run", "/usr/bin", "/usr/lib/systemd/system", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d", "/usr/share/kvpipe",
		"/usr/share/doc", "/usr/share/licenses", "/var/lib/kvpipe", "/var/lib/systemd", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
	} {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // what is not there is not listed
			}
			all[path] = true
			if d.IsDir() && path != root && (root == "/usr/share/doc" || root == "/usr/lib/x86_64-linux-gnu") {
				return filepath.SkipDir
			}
			return nil
		})
	}
	return all
}
