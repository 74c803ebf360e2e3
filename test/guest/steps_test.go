package guest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// install: the package starts the daemon, as its own user, in its sandbox, ready and with nothing to complain of.
func (g *guest) install() {
	g.packages("now")
	g.eventually("the service is active", func() bool { return try("systemctl", "is-active", service) == "active" })
	for property, want := range map[string]string{
		"Type": "notify", "User": "kvpipe", "LimitMEMLOCK": "infinity", "LimitCORE": "0", "OOMScoreAdjust": "-500", "RuntimeDirectoryPreserve": "yes",
		"WatchdogUSec": "30s", "NRestarts": "0",
	} {
		if got := g.show(property); got != want {
			g.step.Errorf("%s is %q, want %q", property, got, want)
		}
	}
	for unit, want := range map[string]string{service: "enabled", "kvpiped.socket": "enabled", "kvpiped-peer.socket": "disabled"} {
		if got := try("systemctl", "is-enabled", unit); got != want {
			g.step.Errorf("%s is %s, want %s", unit, got, want)
		}
	}
	g.run("systemd-analyze", "security", "--no-pager", "--threshold=30", service)
	if st := g.run("stat", "-c", "%a %U %G %F", socket); st != "660 kvpipe kvpipe socket" {
		g.step.Errorf("%s is %s", socket, st)
	}
	g.eventually("the status text is there", func() bool { return strings.HasPrefix(g.show("StatusText"), "0 sessions, ") })
	g.says("ready", "KVPIPE_SOCKET="+socket, "PRIORITY=6")
	for l := range strings.Lines(try("journalctl", "-u", service, "-p", "warning", "-o", "cat", "--no-pager", "-q")) {
		if !strings.Contains(l, "the daemon stood still") { // as all does in a guest that its machine does not let run
			g.step.Errorf("a warning after the installation: %s", l)
		}
	}
	// Without certificates the peers' socket does not open, whatever an administrator says.
	g.run("systemctl", "start", "kvpiped-peer.socket")
	if got := try("systemctl", "is-active", "kvpiped-peer.socket"); got != "inactive" {
		g.step.Errorf("kvpiped-peer.socket without certificates is %s", got)
	}
}

// handOver: the example of the documentation, then two engines that go on to the end.
func (g *guest) handOver() {
	bin := "/opt/guest/bin"
	g.run("mkdir", "-p", bin, "/opt/guest/lib")
	g.run("cp", filepath.Join(*tree, "build/bin/test-engine"), filepath.Join(*tree, "build/bin/examples/handover"), bin)
	g.run("chmod", "-R", "a+rX", "/opt/guest")
	g.t.Setenv("KVPIPE_BIN", bin)
	g.run("runuser", "-u", "nobody", "-g", "kvpipe", "--", bin+"/handover")
	stranger := exec.Command("runuser", "-u", "nobody", "-g", "nogroup", "--", bin+"/handover")
	if out, err := stranger.CombinedOutput(); err == nil || !strings.Contains(string(out), "ermission denied") {
		g.step.Errorf("a user who is not in the group: %v\n%s", err, out)
	}
	grp, err := user.LookupGroup("kvpipe")
	if err != nil {
		g.step.Fatal(err)
	}
	group, _ := strconv.Atoi(grp.Gid)
	g.decode = g.engine("decode", "guest", socket, group, nil)
	g.prefill = g.engine("prefill", "guest", socket, group, func(word string, rest []string) {
		if word == "offer" {
			g.decode.Tell("take %s %s", rest[0], rest[1])
		}
	})
	g.start(g.decode, 10)
	g.start(g.prefill, 0)
	flowing(g.decode, 20)
	g.eventually("the status text counts them", func() bool { return strings.HasPrefix(g.show("StatusText"), "2 sessions, 16MiB registered; ") })
}

// reload: systemctl reload changes what can change, and a broken file is told of and changes nothing.
func (g *guest) reload() {
	pid := g.show("MainPID")
	g.edit("#sessions = 1024", "sessions = 77")
	g.run("systemctl", "reload", service)
	g.says("reloaded", "KVPIPE_CHANGED=[limits.sessions]")
	g.edit("sessions = 77", "sesions = 77")
	g.run("systemctl", "reload", service)
	g.says(`did you mean \"limits.sessions\"?`, "PRIORITY=3")
	g.edit("sesions = 77", "sessions = 77")
	g.eventually("the service is active again", func() bool { return g.show("ActiveState") == "active" })
	if now := g.show("MainPID"); now != pid {
		g.step.Errorf("the process was %s and is %s", pid, now)
	}
	flowing(g.decode, 5)
}

// restarts: whatever the daemon is in the middle of, its engines go on without it and with the next one, and get nothing wrong.
func (g *guest) restarts() {
	for i := range *times {
		pid := g.show("MainPID")
		g.run("systemctl", "reset-failed", service)            // StartLimitBurst= is for those who cannot start
		<-time.After(time.Duration(i) * 17 * time.Millisecond) // any moment will do
		if i%2 == 0 {
			g.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", service)
		} else {
			g.run("systemctl", "restart", service)
		}
		flowing(g.decode, 5)
		g.another(pid)
		if g.t.Failed() {
			g.step.Fatalf("after restart %d", i)
		}
	}
	// Stopped alone, it is started again by the first engine that asks at the socket.
	g.run("systemctl", "stop", service)
	flowing(g.decode, 5)
	if st, err := os.Stat(socket + ".state"); err != nil || st.Size() == 0 {
		g.step.Errorf("the state file: %v, %v", st, err)
	}
	g.step.Logf("engines: %v, %v", g.prefill.All(), g.decode.All())
}

// watchdog: a daemon that does not answer is killed and replaced, and says why in the journal.
func (g *guest) watchdog() {
	const dropin = "/run/systemd/system/kvpiped.service.d"
	if err := os.MkdirAll(dropin, 0o755); err != nil {
		g.step.Fatal(err)
	}
	if err := os.WriteFile(dropin+"/watchdog.conf", []byte("[Service]\nWatchdogSec=8s\n"), 0o600); err != nil {
		g.step.Fatal(err)
	}
	g.run("systemctl", "daemon-reload")
	g.run("systemctl", "restart", service)
	flowing(g.decode, 5)
	pid := g.show("MainPID")
	g.run("kill", "-STOP", pid)
	flowing(g.decode, 5) // which none does before systemd has killed it
	g.another(pid)
	if got := try("journalctl", "-u", service, "_PID=1", "--no-pager", "-o", "cat", "-n", "20"); !strings.Contains(got, "Watchdog timeout") {
		g.step.Errorf("no word of the watchdog:\n%s", got)
	}
	if err := os.RemoveAll(dropin); err != nil {
		g.step.Fatal(err)
	}
	g.run("systemctl", "daemon-reload")
	g.run("systemctl", "restart", service)
	flowing(g.decode, 5)
}

// upgrades: the next version, which speaks protocols one higher too, and this one again. The configuration stays as it was edited.
func (g *guest) upgrades() {
	for _, which := range []string{"next", "now"} {
		pid := g.show("MainPID")
		g.packages(which)
		s := g.runs(which, pid)
		for _, l := range s.Limits {
			if l.Key == "limits.sessions" && l.Limit != 77 {
				g.step.Errorf("limits.sessions is %d: the configuration was not kept", l.Limit)
			}
		}
		flowing(g.decode, 10)
	}
}

// runs waits for a daemon that is not the process pid, and holds it to its version.
func (g *guest) runs(which, pid string) (s admin.Status) {
	g.step.Helper()
	g.eventually("the "+which+" daemon answers", func() bool {
		return g.show("MainPID") != pid && g.ctl.Get(g.step.Context(), "status", nil, &s) == nil
	})
	if isNext := s.Version == "next"; isNext != (which == "next") {
		g.step.Errorf("%s has version %s", which, s.Version)
	}
	return s
}

// administrator: engines go on when the socket is started anew, its folder removed, and the package taken away and brought back.
func (g *guest) administrator() {
	g.run("systemctl", "restart", "kvpiped.socket")
	flowing(g.decode, 5)
	g.run("sh", "-c", "rm -r /run/kvpipe && systemctl restart kvpiped")
	g.says("somebody has removed or replaced the file", "PRIORITY=3")
	flowing(g.decode, 5)
	g.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", service)
	flowing(g.decode, 5)
	g.run("systemctl", "restart", "kvpiped.socket")
	flowing(g.decode, 5)
	g.run("dpkg", "--remove", "kvpiped")
	if got := try("systemctl", "is-active", service, "kvpiped.socket"); got != "inactive\ninactive" {
		g.step.Errorf("after the removal the service and its socket are %s", got)
	}
	g.packages("now")
	flowing(g.decode, 5)
}

// purge: nothing is left but the user, who keeps his number.
func (g *guest) purge() {
	g.rest()
	g.run("dpkg", "--purge", "kvpiped", "kvpipectl", "libkvpipe0")
	g.nothingLeft()
	if _, err := user.Lookup("kvpipe"); err != nil {
		g.step.Error(fmt.Errorf("the user: %w", err))
	}
}

// rest ends the engines.
func (g *guest) rest() {
	for _, quiet := range []func(){g.prefill.Quiet, g.decode.Quiet, g.prefill.Kill, g.decode.Kill} {
		quiet()
	}
}

func (g *guest) nothingLeft() {
	g.step.Helper()
	for path := range files(g.step) {
		if !g.before[path] && (strings.Contains(path, "kvpipe") || !strings.HasPrefix(path, "/run/")) {
			g.step.Errorf("left behind: %s", path)
		}
	}
	if left := try("systemctl", "list-units", "--all", "--no-legend", "--plain", "kvpipe*"); left != "" {
		g.step.Errorf("units that systemd still knows:\n%s", left)
	}
}

// rpm: the other packages are started by the administrator, upgraded and downgraded under engines, and leave nothing either. Their database
// is one of its own, which knows nothing of Debian's packages.
func (g *guest) rpm() {
	do := func(what string, args ...string) {
		g.step.Helper()
		if out := g.run("rpm", append([]string{what, "--dbpath=/opt/guest/rpm", "--force-debian", "--nodeps"}, args...)...); out != "" {
			g.step.Errorf("rpm %s says:\n%s", what, out)
		}
	}
	do("--install", g.made("now", "*.rpm", 3)...)
	if got := try("systemctl", "is-active", service); got != "inactive" {
		g.step.Errorf("%s is %s before somebody has started it", service, got)
	}
	g.run("systemctl", "start", service)
	g.decode.Env, g.prefill.Env = []string{"LD_LIBRARY_PATH=/usr/lib64"}, []string{"LD_LIBRARY_PATH=/usr/lib64"} // as Fedora has it
	g.start(g.decode, 10)
	g.start(g.prefill, 0)
	flowing(g.decode, 5)
	for _, which := range []string{"next", "now"} {
		pid := g.show("MainPID")
		do("--upgrade", append([]string{"--oldpackage"}, g.made(which, "*.rpm", 3)...)...)
		g.runs(which, pid)
		flowing(g.decode, 5)
	}
	g.rest()
	do("--erase", "kvpiped", "kvpipectl", "libkvpipe")
	g.before["/usr/share/licenses"] = true // is in every system of rpms, by another package
	g.nothingLeft()
}
