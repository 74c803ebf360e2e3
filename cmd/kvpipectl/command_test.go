package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

func TestErrors(t *testing.T) {
	socket := admintest.Serve(t, admintest.Example())
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct{ args, want string }{
		{"status --admin " + none, "no daemon at " + none + `: start it ("systemctl start kvpiped", or "kvpiped --dev"), or name its admin socket with --admin or $KVPIPE_ADMIN`},
		{"explain nobody --admin " + socket, `peer "nobody" is not known (known: decode-1): kvpipectl peers lists what is known`},
		{"explain a b --admin " + socket, "unexpected argument \"b\": kvpipectl explain takes the name of one peer, see --help"},
		{"bench a b --admin " + socket, "unexpected argument \"b\": kvpipectl bench takes the name of one peer, see --help"},
		{"help nope", "unknown command \"nope\" for \"kvpipectl\""},
		{"help statuss", "unknown command \"statuss\" for \"kvpipectl\"\n\nDid you mean this?\n\tstatus\n"},
		{"help certs nod", "unknown command \"nod\" for \"kvpipectl certs\": kvpipectl certs --help lists what there is"},
		{"bench --sizes big --admin " + socket, `--sizes "big": give numbers of bytes, or such as 64KiB`},
		{"bench --seconds 0 --admin " + socket, "--seconds 0: give a number above 0"},
		{"bench --seconds NaN --admin " + socket, "--seconds NaN: give a number above 0"},
		{"bench --seconds Inf --admin " + socket, "--seconds +Inf: give a number above 0"},
		{"transfers --watch --interval 0s --admin " + socket, "--interval 0s: give a time above zero"},
		{"transfers --watch=1 --admin " + socket, `invalid argument "1" for "-w, --watch" flag: it takes no value; --interval is for the pause, such as --interval 1s: kvpipectl transfers --help lists the flags`},
		{"statuss", "unknown command \"statuss\" for \"kvpipectl\"\n\nDid you mean this?\n\tstatus\n"},
		{"status --jsn", "unknown flag: --jsn: kvpipectl status --help lists the flags"},
		{"regions all", "unexpected argument \"all\": kvpipectl regions takes flags alone, see --help"},
		{"certs nod n1", "unknown command \"nod\" for \"kvpipectl certs\": kvpipectl certs --help lists them"},
		{"completion bahs", "unknown command \"bahs\" for \"kvpipectl completion\": kvpipectl completion --help lists them"},
		{"certs node", "certs node: 0 names: give the name of one node, as in its configuration"},
		{"certs node a --ca " + none, "read certificate: open " + none + "/ca.crt: no such file or directory: make a CA first (kvpipectl certs init), or name its directory with --ca"},
		{"certs init --days 0", "--days 0: give 1 to 36500"},
		{"certs init --days 200000", "--days 200000: give 1 to 36500"},
		{"certs node a --days -1", "--days -1: give 1 to 36500"},
	} {
		out, err := ctlRun(t.Context(), strings.Fields(c.args)...)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.args, err, c.want)
		}
		if out != "" {
			t.Errorf("%s: prints %q beside its error", c.args, out)
		}
	}
}

// TestVersionWithoutDaemon: the own version is told even so.
func TestVersionWithoutDaemon(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	out, err := ctlRun(t.Context(), "version", "--admin", none)
	if err != nil || !strings.HasPrefix(out, "kvpipectl ") || !strings.Contains(out, "unknown: no daemon at "+none) {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAdminFromEnvironment(t *testing.T) {
	t.Setenv("KVPIPE_ADMIN", admintest.Serve(t, admintest.Example()))
	if out, err := ctlRun(t.Context(), "status"); err != nil || !strings.Contains(out, "prefill-0") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestDrain(t *testing.T) {
	src := admintest.Example()
	out, err := ctlRun(t.Context(), "drain", "--json", "--admin", admintest.Serve(t, src))
	var got struct {
		Drained bool
		Seconds float64
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || !got.Drained || got.Seconds <= 0 || src.DrainCalls != 1 {
		t.Errorf("%q, %v, asked %d times", out, err, src.DrainCalls)
	}
}

// TestBenchAsksWhatItWasTold: peer and options arrive.
func TestBenchAsksWhatItWasTold(t *testing.T) {
	src := admintest.Example()
	_, err := ctlRun(t.Context(), "bench", "decode-1", "--seconds", "0.25", "--sizes", "4096,64KiB", "--admin", admintest.Serve(t, src))
	if err != nil {
		t.Fatal(err)
	}
	if src.LastPeer != "decode-1" || src.LastBench.Seconds != 0.25 || !slices.Equal(src.LastBench.Sizes, []uint64{4096, 65536}) {
		t.Errorf("asked for %q, %+v", src.LastPeer, src.LastBench)
	}
}

// TestBenchThatIsBrokenOff: the rows until then are printed, and a script learns that there should be more.
func TestBenchThatIsBrokenOff(t *testing.T) {
	src := admintest.Example()
	src.BenchErr = errors.New("the peer left")
	socket := admintest.Serve(t, src)
	for form, says := range map[string]string{"--json=false": "11.30 GB/s", "--json": `"error": "the peer left"`} {
		out, err := ctlRun(t.Context(), "bench", "decode-1", form, "--admin", socket)
		if err == nil || err.Error() != "the measurement was broken off: the peer left" || !strings.Contains(out, says) {
			t.Errorf("%s: %q, %v", form, out, err)
		}
	}
}

// TestBenchOfADaemonThatDies: the same, with the daemon to blame.
func TestBenchOfADaemonThatDies(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	dies := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(admin.BenchRow{Transport: "tcp", Bytes: 4096, Blocks: 1, Count: 9, GBps: 11.3})
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})}
	go func() { _ = dies.Serve(l) }()
	defer func() { _ = dies.Close() }()
	for form, says := range map[string]string{"--json=false": "11.30 GB/s", "--json": `"gbps": 11.3`} {
		out, err := ctlRun(t.Context(), "bench", "decode-1", form, "--admin", socket)
		if err == nil || err.Error() != "the measurement was broken off: the daemon hung up: its log may say why" || !strings.Contains(out, says) {
			t.Errorf("%s: %q, %v", form, out, err)
		}
	}
}

// TestBenchOfNothing: a script learns that no row was measured, and people learn why.
func TestBenchOfNothing(t *testing.T) {
	src := admintest.Example()
	src.Rows = []admin.BenchRow{{Transport: "tcp", Bytes: 4096, Error: "the daemon of node \"decode-1\" is draining"}}
	socket := admintest.Serve(t, src)
	for _, form := range []string{"--json=false", "--json"} {
		out, err := ctlRun(t.Context(), "bench", "decode-1", form, "--admin", socket)
		if err == nil || err.Error() != "nothing could be measured: each row says why" || !strings.Contains(out, "is draining") {
			t.Errorf("%s: %q, %v", form, out, err)
		}
	}
}

// TestCompletionDoesNotWait: a daemon that stands still does not hold up a shell at a key.
func TestCompletionDoesNotWait(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", socket) // which nobody serves
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	began := time.Now()
	out, err := ctlRun(t.Context(), "__complete", "explain", "--admin", socket, "")
	if took := time.Since(began); err != nil || !strings.HasPrefix(out, ":") || took > 10*time.Second {
		t.Errorf("after %s: %q, %v", took, out, err)
	}
}

// TestWatch prints until it is interrupted, which is no error.
func TestWatch(t *testing.T) {
	socket := admintest.Serve(t, admintest.Example())
	ctx, cancel := context.WithCancel(t.Context())
	seen := &tables{want: 3, reached: cancel}
	if err := execute(ctx, seen, []string{"transfers", "--watch", "--interval", "1ms", "--admin", socket}); err != nil {
		t.Error(err)
	}
	if seen.n < seen.want {
		t.Errorf("printed %d tables, want %d", seen.n, seen.want)
	}
}

// TestInterrupted: what is to print once, and did not, has failed.
func TestInterrupted(t *testing.T) {
	socket := admintest.Serve(t, admintest.Example())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := execute(ctx, io.Discard, []string{"transfers", "--admin", socket}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, want %v", err, context.Canceled)
	}
}

// tables counts those that are printed.
type tables struct {
	n, want int
	reached func()
}

func (s *tables) Write(b []byte) (int, error) {
	if s.n += strings.Count(string(b), "DEADLINE"); s.n >= s.want {
		s.reached()
	}
	return len(b), nil
}

func TestCompletion(t *testing.T) {
	t.Setenv("KVPIPE_ADMIN", admintest.Serve(t, admintest.Example()))
	out, err := ctlRun(t.Context(), "__complete", "explain", "")
	if err != nil || !strings.HasPrefix(out, "decode-1\ndecode-2\n") {
		t.Errorf("peers to complete: %q, %v", out, err)
	}
	if out, err = ctlRun(t.Context(), "completion", "bash"); err != nil || !strings.Contains(out, "kvpipectl") {
		t.Errorf("completion for bash: %d bytes, %v", len(out), err)
	}
}

// TestCerts: what it makes is what a daemon takes; keys are for their owner alone, and nothing is overwritten.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	out, err := ctlRun(t.Context(), "certs", "init", "--ca", dir)
	if err != nil || !strings.Contains(out, "kvpipectl certs node NAME --ca "+dir) {
		t.Fatalf("%q, %v", out, err)
	}
	to := filepath.Join(t.TempDir(), "node")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err = ctlRun(t.Context(), "certs", "node", "prefill-0", "--ca", dir, "--out", to, "--host", "10.0.0.1,prefill-0.example")
	if err != nil || !strings.Contains(out, `node = "prefill-0"`) || !strings.Contains(out, `cert = "/etc/kvpipe/prefill-0.crt"`) {
		t.Fatalf("%q, %v", out, err)
	}
	cert, key := pki.NodeFiles(to, "prefill-0")
	out, err = ctlRun(t.Context(), "certs", "node", "prefill-0", "--ca", dir, "--out", to, "--json")
	var m made
	if err != nil || json.Unmarshal([]byte(out), &m) != nil || m != (made{cert, key}) {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := pki.Open(filepath.Join(dir, pki.CAFile), cert, key, "prefill-0"); err != nil {
		t.Error(err)
	}
	for _, secret := range []string{key, filepath.Join(dir, pki.CAKeyFile)} {
		if st, err := os.Stat(secret); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want mode 600", secret, st, err)
		}
	}
	if strings.Contains(out, "the CA ends then") {
		t.Errorf("%q, of a CA that lasts", out)
	}
	out, err = ctlRun(t.Context(), "certs", "node", "long", "--ca", dir, "--days", "36500")
	if err != nil || !strings.Contains(out, ", valid until "+time.Now().AddDate(0, 0, 3650).UTC().Format(time.DateOnly)+": the CA ends then") {
		t.Errorf("%q, %v", out, err)
	}
	out, err = ctlRun(t.Context(), "certs", "init", "--ca", filepath.Join(t.TempDir(), "ca2"), "--json")
	if err != nil || json.Unmarshal([]byte(out), &m) != nil || filepath.Base(m.Cert) != pki.CAFile || filepath.Base(m.Key) != pki.CAKeyFile {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := ctlRun(t.Context(), "certs", "init", "--ca", dir); err == nil {
		t.Error("a second init replaces the CA")
	}
}

// TestCertsSayWhatToWrite: the lines that it prints are a configuration that names the files that it made, whatever characters a name has.
func TestCertsSayWhatToWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	if _, err := ctlRun(t.Context(), "certs", "init", "--ca", dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prefill-0", `rack"7`, "rack%d", "rack'7", "rack#7"} {
		out, err := ctlRun(t.Context(), "certs", "node", name, "--ca", dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, lines, _ := strings.Cut(out, "kvpiped.toml:\n")
		c, err := config.Parse([]byte(lines))
		want := config.TLS{CA: "/etc/kvpipe/ca.crt", Cert: "/etc/kvpipe/" + name + ".crt", Key: "/etc/kvpipe/" + name + ".key"}
		if err != nil || c.Node != name || c.TLS != want {
			t.Errorf("%s: %q, %+v, %v", name, c.Node, c.TLS, err)
		}
	}
}
