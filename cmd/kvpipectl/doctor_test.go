package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
	"github.com/kvpipe/kvpipe/internal/sys"
	"github.com/kvpipe/kvpipe/internal/version"
)

// want is the beginning of a finding and a part of its fix.
type want struct{ answer, text, fix string }

func compare(t *testing.T, got []finding, wants ...want) {
	t.Helper()
	if len(got) != len(wants) {
		t.Fatalf("%d findings, want %d: %+v", len(got), len(wants), got)
	}
	for i, w := range wants {
		if f := got[i]; f.Answer != w.answer || !strings.Contains(f.Text, w.text) || !strings.Contains(f.Fix, w.fix) || (f.Fix == "") != (f.Answer == "ok") {
			t.Errorf("finding %+v\nwant %+v, and a fix unless ok", f, w)
		}
	}
}

// shortDir is a folder whose path leaves room for a socket's name, and other users may pass.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kvd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listenEngines(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := sys.ListenSeqpacket(path, sys.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path
}

func TestDoctorSocket(t *testing.T) {
	dir := shortDir(t)
	stale, stream := filepath.Join(dir, "stale"), filepath.Join(dir, "stream")
	old, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: stale, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	l, err := net.Listen("unix", stream)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, w := range map[string]want{
		listenEngines(t):            {"ok", fmt.Sprintf("answers (pid %d, ", os.Getpid()), ""},
		stale:                       {"problem", "nobody listens on it", "mount the socket's directory"},
		stream:                      {"problem", "a socket of another kind", "KVPIPE_SOCKET"},
		filepath.Join(dir, "none"):  {"problem", "none does not exist", "kvpiped --dev"},
		filepath.Join(dir, "a/s"):   {"problem", dir + "/a does not exist", "mount " + dir + "/a from the node"},
		dir:                         {"problem", dir + " is no socket, but a directory", "name the socket in it: " + dir + "/kvpiped.sock"},
		file:                        {"problem", file + " is no socket", "KVPIPE_SOCKET"},
		strings.Repeat("long", 100): {"problem", "invalid argument", "--socket"},
	} {
		d := doctor{socket: path, root: "/", now: time.Now()}
		got, pid := d.connection()
		compare(t, got, w)
		if (pid == os.Getpid()) != (w.answer == "ok") {
			t.Errorf("%s: pid %d", path, pid)
		}
	}
}

// TestDoctorPermission: the fix names the group where the mode lets it in, else the user. Nobody is told to join root's group. Root is refused nothing,
// so the finding is asked for directly.
func TestDoctorPermission(t *testing.T) {
	path := listenEngines(t)
	d := doctor{socket: path}
	members := want{"problem", "permission denied: " + path + " is for members of group ", "set group in kvpiped.toml to one that the engine's user is a member of, and restart kvpiped"}
	if os.Getegid() == 0 {
		if err := os.Chmod(path, 0o660); err != nil {
			t.Fatal(err)
		}
		of := d.noPermission()
		if compare(t, []finding{of}, members); strings.Contains(of.Fix, "usermod") || strings.Contains(of.Fix, "member of group") {
			t.Errorf("root's group: %s", of.Fix)
		}
		if err := os.Chown(path, -1, 4242); err != nil {
			t.Fatal(err)
		}
	}
	members.fix = "(usermod -aG "
	for mode, w := range map[os.FileMode]want{
		0o660: members,
		0o600: {"problem", "permission denied: " + path + " is for user ", "kvpiped --dev"},
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		compare(t, []finding{d.noPermission()}, w)
	}
}

func TestDoctorCongestion(t *testing.T) {
	d := doctor{}
	for name, w := range map[string][]want{
		"cubic": {{"ok", "data links have cubic", ""}},
		"bbr":   {{"warning", "data links have bbr, which paces", "sysctl -w net.ipv4.tcp_congestion_control=cubic"}},
		"":      nil, // a daemon that does not say
	} {
		compare(t, d.congestion(&admin.Status{Listen: "127.0.0.1:7650", Congestion: name}), w...)
	}
	for _, listen := range nowhere {
		compare(t, d.congestion(&admin.Status{Listen: listen, Congestion: "bbr"}))
		compare(t, d.congestion(&admin.Status{Listen: listen, Counts: dialing, Congestion: "cubic"}), want{"ok", "data links have cubic", ""})
	}
}

// nowhere is how a daemon says that it does not listen, and has said it. One with a peer dials.
var (
	nowhere = []string{"", "off"}
	dialing = admin.Counts{Peers: 1}
)

// host makes a tree of what doctor reads below proc and sys.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDoctorHost(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	limits := func(n string) string {
		return head + "Max processes             62000                62000                processes \nMax open files            " + n + "              524288               files     \n"
	}
	const shmem = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
	const reserved = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
	for _, c := range []struct {
		files        map[string]string
		limits, huge []want
	}{
		{
			map[string]string{"proc/7/limits": limits("524288"), "proc/sys/vm/max_map_count": "65530\n", reserved: "12\n"},
			[]want{{"ok", "may open 524288 files", ""}}, []want{{"ok", "12 reserved pages", ""}},
		},
		{
			map[string]string{"proc/7/limits": limits("1024"), "proc/sys/vm/max_map_count": "1000\n", reserved: "0\n", shmem: "always within_size [advise] never deny force\n"},
			[]want{{"warning", "may open 1024 files: each session takes 4, ", "LimitNOFILE"}, {"warning", "max_map_count is 1000", "65530"}}, []want{{"ok", "shmem_enabled is advise", ""}},
		},
		{
			map[string]string{"proc/7/limits": head, shmem: "always within_size advise [never] deny force\n"},
			[]want{{"warning", "no line of open files", "report"}}, []want{{"warning", `shmem_enabled is "never"`, "echo advise"}},
		},
		{nil, []want{{"warning", "cannot be read", "root"}}, []want{{"warning", "there are none", "vm.nr_hugepages"}}},
	} {
		d := doctor{root: host(t, c.files)}
		compare(t, d.limits(7), c.limits...)
		compare(t, d.hugePages(), c.huge...)
	}
	compare(t, (&doctor{}).limits(0), want{"warning", "not visible", "visible"})
}

func TestDoctorDaemon(t *testing.T) {
	d := doctor{now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
	running := admin.Status{Node: "n", State: "running", Version: version.String(), Listen: "[::]:7650"}
	draining, other := running, running
	draining.State, other.Version, other.Warnings = "draining", "0.0.9", []string{"insecure is on"}
	compare(t, d.daemon(&running, nil, false), want{"ok", "node n, version " + version.String(), ""})
	compare(t, d.daemon(&draining, nil, false), want{"problem", "node n is draining", "restart the daemon"})
	compare(t, d.daemon(&other, nil, false), want{"warning", "runs 0.0.9", "same release"}, want{"warning", "insecure is on", "operating.md"})
	none := fmt.Errorf("%w at X: start it", admin.ErrNoDaemon)
	compare(t, d.daemon(nil, none, false), want{"problem", "no daemon at X", "KVPIPE_ADMIN"})
	compare(t, (&doctor{places: []string{"X", "Y"}}).daemon(nil, none, true), want{"warning", "its admin socket is not at X or Y", "KVPIPE_ADMIN"})
	compare(t, d.daemon(nil, errors.New("no daemon at X"), false), want{"problem", "no daemon at X", "--admin"})
	// One that stands still, or hung up, is there: another one would not start.
	compare(t, d.daemon(nil, errors.New("the daemon at X has not answered for 30s: its log may say why"), true), want{"problem", "has not answered", "restart it"})
	// Engines' users, whom it is for, may not ask the daemon: that keeps no engine from working.
	compare(t, d.daemon(nil, fmt.Errorf("X: %w", fs.ErrPermission), false), want{"warning", "X: permission denied", "as root"})
	told := running
	told.Warnings = []string{"certificate: no PEM block"}
	compare(t, d.daemon(&told, nil, false), want{"ok", "node n", ""})

	until := func(day int, why string) *admin.Certificate {
		return &admin.Certificate{File: "n.crt", Until: time.Date(2026, 5, day, 0, 0, 0, 0, time.UTC), Problem: why}
	}
	ofCA := func(c *admin.Certificate) *admin.Certificate { c.CA = "CN=x"; return c }
	for _, c := range []struct {
		cert *admin.Certificate
		want want
	}{
		{nil, want{"problem", "none: this node cannot connect to others", "restart kvpiped"}},
		{until(1, ""), want{"problem", "n.crt expired on 2026-05-01", "certs node n"}},
		{until(20, ""), want{"warning", "expires on 2026-05-20", "certs node n"}},
		{ofCA(until(1, "")), want{"problem", "n.crt with its CA (CN=x) expired on 2026-05-01", "certs init"}},
		{ofCA(until(20, "")), want{"warning", "n.crt with its CA (CN=x) expires on 2026-05-20", "certs init"}},
		{&admin.Certificate{File: "n.crt", Problem: "n.key: permission denied"}, want{"problem", "n.key: permission denied", "mend that"}},
		{until(60, "no PEM block"), want{"problem", "n.crt: no PEM block", "mend the file"}},
		{until(60, ""), want{"ok", "good until 2026-06-29", ""}},
	} {
		s := running
		s.Certificate = c.cert
		compare(t, d.certificate(&s), c.want)
	}
	for _, listen := range nowhere {
		off := running
		off.Listen = listen
		compare(t, d.certificate(&off), want{"ok", "none needed", ""})
		off.Counts = dialing
		compare(t, d.certificate(&off), want{"problem", "none: this node cannot connect to others", "restart kvpiped"})
		off.Insecure = true
		compare(t, d.certificate(&off), want{"warning", "not authenticated (insecure)", "certs init"})
		off.Certificate = until(1, "")
		compare(t, d.certificate(&off), want{"problem", "n.crt expired on 2026-05-01", "certs node n"})
		off.Counts = admin.Counts{} // a peer may yet be named
		compare(t, d.certificate(&off), want{"problem", "n.crt expired on 2026-05-01", "certs node n"})
	}
}

func TestDoctorPeers(t *testing.T) {
	d, s := doctor{}, &admin.Status{Listen: "[::]:7650"}
	down := func(problem string) admin.Peer {
		return admin.Peer{Node: "b", Address: "h:1", State: "down", Problem: problem}
	}
	for _, c := range []struct {
		peers []admin.Peer
		want  []want
	}{
		{nil, []want{{"ok", "none are configured", ""}}},
		{[]admin.Peer{{Node: "b", State: "up", Transport: "tcp"}, {Node: "c", State: "up", Transport: "tcp"}}, []want{{"ok", "connected: b, c", ""}}},
		{[]admin.Peer{{Node: "b", State: "up"}}, []want{{"problem", "no transport serves it", "explain b"}}},
		{[]admin.Peer{down("")}, []want{{"ok", "on first use", ""}}},
		{[]admin.Peer{down("dial tcp h:1: connect: connection refused")}, []want{{"problem", "connection refused", "start kvpiped on b"}}},
		{[]admin.Peer{down(`hello: refused: node "a" (2.0) speaks versions 2 to 2 of the peer protocol, node "b" (1.0) 1 to 1: upgrade the older one`)},
			[]want{{"problem", "2 to 2", "upgrade the older"}}},
		{[]admin.Peer{down("hello: refused: hello with empty, oversized or unprintable fields")}, []want{{"problem", "unprintable", "doctor on b"}}},
		{[]admin.Peer{down("remote error: tls: unknown certificate")}, []want{{"problem", "unknown certificate", "same CA"}}},
		{[]admin.Peer{down("TLS handshake: no TLS there (tls: first record does not look like a TLS handshake): is it a kvpiped, and does it run insecure?")},
			[]want{{"problem", "no TLS there", "need certificates"}}},
		{[]admin.Peer{down("TLS handshake: read tcp h:2->h:1: i/o timeout")}, []want{{"problem", "i/o timeout", "open TCP to h:1"}}},
		{[]admin.Peer{down("TLS handshake: EOF")}, []want{{"problem", "EOF", "both daemons' logs"}}},
		{[]admin.Peer{down("TLS handshake: the peer has no certificate that it could show; its log says why (tls: internal error)")},
			[]want{{"problem", "its log says why", "mend the certificate of b"}}},
		{[]admin.Peer{down(`refused: two nodes are called "a": give each its own name and certificate`)}, []want{{"problem", "two nodes", "give one of the two another name"}}},
		{[]admin.Peer{down("two daemons have its name, at 10.0.0.1:7650 and at 10.0.0.2:40000: each ends the other's channels; give each a name and a certificate of its own")},
			[]want{{"problem", "two daemons", "give one of the two another name"}}},
		{[]admin.Peer{down("this daemon has no certificate to show to peers: n.key: permission denied")}, []want{{"problem", "no certificate", "mend this node's certificate"}}},
		{[]admin.Peer{down("this daemon's certificate is refused by peers: it ended")}, []want{{"problem", "is refused", "mend this node's certificate"}}},
		{[]admin.Peer{down("cannot connect: dial tcp: lookup b.tls.svc: no such host")}, []want{{"problem", "b.tls.svc", "[peers.nodes]"}}},
		{[]admin.Peer{down(`peer "tls-b": dial tcp h:1: connect: connection refused`)}, []want{{"problem", "connection refused", "start kvpiped on b"}}},
		{[]admin.Peer{down("lookup h: no such host")}, []want{{"problem", "no such host", "[peers.nodes]"}}},
		{[]admin.Peer{down("dial tcp: i/o timeout")}, []want{{"problem", "timeout", "open TCP to h:1"}}},
		{[]admin.Peer{down(`node "x" answers there, not "b": correct peers.nodes`)}, []want{{"problem", "answers there", "address of b under [peers.nodes]"}}},
		{[]admin.Peer{down("strange")}, []want{{"problem", "strange", "kvpipectl doctor on b"}}},
	} {
		compare(t, d.peers(s, c.peers), c.want...)
	}
}

// TestDoctorGPUs: a node without GPUs is well, one whose GPUs cannot be used is warned of, with what mends it.
func TestDoctorGPUs(t *testing.T) {
	d := doctor{}
	for _, c := range []struct {
		gpus admin.GPUSummary
		want want
	}{
		{admin.GPUSummary{State: "ok", Count: 8, Driver: "570.133.20"}, want{"ok", "8, driver 570.133.20", ""}},
		{admin.GPUSummary{State: "ok", Count: 8, Lost: 1}, want{"warning", "1 of 8 are lost", "kvpipectl gpus"}},
		{admin.GPUSummary{State: "no_library", Reason: "NVML cannot be loaded", Fix: "nothing, if"}, want{"ok", "none: NVML cannot be loaded", ""}},
		{admin.GPUSummary{State: "starting", Reason: "NVML is still starting"}, want{"ok", "none: NVML is still starting", ""}},
		{admin.GPUSummary{State: "driver_mismatch", Reason: "different versions", Fix: "reboot"}, want{"warning", "different versions", "reboot"}},
		{admin.GPUSummary{State: "no_permission", Reason: "may not", Fix: "let it"}, want{"warning", "may not", "let it"}},
		{admin.GPUSummary{State: "ok", Count: 8, Reason: "NVML does not return", Fix: "nvidia-smi"}, want{"warning", "NVML does not return", "nvidia-smi"}},
		{admin.GPUSummary{State: "failed", Reason: "odd", Fix: "nvidia-smi"}, want{"warning", "odd", "nvidia-smi"}},
	} {
		compare(t, d.gpus(&admin.Status{GPUs: c.gpus}), c.want)
	}
}

func TestDoctorNICs(t *testing.T) {
	d, s := doctor{}, &admin.Status{Listen: "[::]:7650"}
	nic := func(name, refused string) admin.NIC {
		return admin.NIC{Name: name, PCI: "0000:17:00.0", Mbps: 100000, Addresses: []string{"10.0.0.1/24"}, Used: refused == "", Refused: refused}
	}
	two := []admin.NIC{nic("eth0", ""), nic("eth1", "")}
	for _, c := range []struct {
		nics admin.NICs
		want []want
	}{
		{admin.NICs{}, nil},
		{admin.NICs{State: "complete", Streams: 2, NICs: two}, []want{{"ok", "eth0 (100 Gb/s), eth1 (100 Gb/s)", ""}}},
		{admin.NICs{State: "complete", Streams: 2, NICs: []admin.NIC{{Name: "veth0", Used: true}}}, []want{{"ok", "data links may go over veth0", ""}}},
		{admin.NICs{State: "complete", Streams: 1, NICs: two}, []want{{"warning", "2 could carry data links, but a channel has 1", "multiple of 2"}}},
		{admin.NICs{State: "complete", Streams: 2, NICs: []admin.NIC{two[0], nic("eth1", "down")}}, []want{{"warning", "though they have addresses: eth1", "cable"}, {"ok", "eth0", ""}}},
		{admin.NICs{State: "complete", Streams: 2, NICs: []admin.NIC{nic("eth0", "nic_deny names it")}}, []want{{"warning", "none is used", "nic_allow"}}},
		{admin.NICs{State: "unknown", Reason: "netlink is forbidden here"}, []want{{"warning", "netlink is forbidden here", "let the daemon use netlink"}}},
	} {
		compare(t, d.nics(s, c.nics), c.want...)
	}
	for _, listen := range nowhere {
		compare(t, d.nics(&admin.Status{Listen: listen}, admin.NICs{State: "complete", NICs: two[:0]}))
		compare(t, d.nics(&admin.Status{Listen: listen, Counts: dialing}, admin.NICs{State: "complete", NICs: two[:0]}), want{"warning", "none is used", "nic_allow"})
	}
}

// TestDoctorWhole: the command's exit, its JSON, and that what is wrong comes with its fix in the printed form.
func TestDoctorWhole(t *testing.T) {
	src := admintest.Example()
	src.S.Version = version.String()
	src.S.Certificate.Until = time.Now().Add(365 * 24 * time.Hour)
	src.P = src.P[:1]
	args := []string{"doctor", "--admin", admintest.Serve(t, src), "--socket", listenEngines(t)}
	out, err := ctlRun(t.Context(), args...)
	if err != nil || !strings.Contains(out, "ok       daemon: node prefill-0") || strings.Contains(out, "problem ") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = ctlRun(t.Context(), append(args, "--json")...)
	var found []finding
	if err != nil || json.Unmarshal([]byte(out), &found) != nil || len(found) < 5 {
		t.Errorf("%v\n%s", err, out)
	}
	none := filepath.Join(t.TempDir(), "none")
	out, err = ctlRun(t.Context(), "doctor", "--admin", args[2], "--socket", none)
	if err == nil || !strings.Contains(out, none+" does not exist") || strings.Contains(out, "limits:") {
		t.Errorf("a socket that is not there says nothing of the daemon's limits: %v\n%s", err, out)
	}
	out, err = ctlRun(t.Context(), "doctor", "--admin", none, "--socket", args[4])
	if err != nil || !strings.Contains(out, "warning  daemon: it answers engines, but its admin socket is not at "+none) {
		t.Errorf("a daemon that answers is told to be started: %v\n%s", err, out)
	}
	out, err = ctlRun(t.Context(), "doctor", "--admin", none, "--socket", none)
	if err == nil || !strings.HasSuffix(err.Error(), "checks found a problem: socket, daemon") || !strings.Contains(out, "fix: start the daemon") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAFindingOfSeveralLines is one finding: what is wrong with three files does not look like three.
func TestAFindingOfSeveralLines(t *testing.T) {
	var out strings.Builder
	printFindings(&out, []finding{problem("certificate", "mend\nthat", "tls.ca: none\ntls.key: none"), fine("peers", "none")})
	if got, want := out.String(), "problem  certificate: tls.ca: none\n         tls.key: none\n         fix: mend\n              that\nok       peers: none\n"; got != want {
		t.Errorf("prints\n%swant\n%s", got, want)
	}
}
