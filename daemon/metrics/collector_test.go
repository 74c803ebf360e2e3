package metrics

import (
	"context"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the page to testdata and the table to docs/operating.md")

const page = "testdata/page.txt"

// example has something of everything.
func example() Snapshot {
	return Snapshot{
		Version: "0.1.0", Node: "prefill-0", Draining: true, Sessions: 3, Regions: 4, PinnedBytes: 5 << 30, OrphanedBytes: 1 << 30, Limits: []Limit{{"limits.offers", 17, 4096}},
		Offers: map[string]int{"sealed": 6, "open": 1}, Pipes: map[string]PipeKind{"pipe": {Homes: 2, Items: 3, Waiting: 4, Bytes: 5}},
		Takes: 7, Transfers: 8, HeldShared: 9, HeldExcl: 10,
		Operations: map[Outcome]uint64{{"take", "done", "ok"}: 11, {"take", "failed", "timeout"}: 1, {"offer", "released", "ok"}: 2},
		MovedBytes: 12 << 40, SlicesRetried: 13, SessionsEnded: map[string]uint64{"closed": 14, "peer_gone": 1},
		Peers: []Peer{
			{Node: "decode-1", Up: true, RTT: 45 * time.Microsecond, Links: 2, Secure: true, DataPlain: true, Chosen: "tcp", InPerSecond: 11.25e9, OutPerSecond: 1.5e9},
			{Node: "decode-2"},
		},
		NICsKnown: true, NICs: []NIC{{Name: "ens1f0np0", Up: true, Used: true, Mbps: 400000, Links: 2}, {Name: "ens3"}},
		Transports: []Transport{
			{Name: "local", SentBytes: 15, GotBytes: 15, SentSlices: 1, GotSlices: 1},
			{Name: "tcp", Peer: "decode-1", SentBytes: 16, GotBytes: 17, SentSlices: 2, GotSlices: 3, Discarded: 18},
		},
		GPUState: "ok", GPUs: map[string]int{"ok": 7, "lost": 1}, GPUErrors: []GPU{{UUID: "GPU-1"}, {UUID: "GPU-2", Errors: 23, LastXid: 79}},
		Malformed: 19, Refused: 20, ChannelsOpened: 21, Reopened: 22, TLS: true, CertificateUntil: time.Unix(1924988645, 0), Warnings: map[string]int{"listen": 1, "nics": 0},
		NearestNICs: []NearestNIC{{"GPU0", "0000:1b:00.0", "mlx5_0", "PIX", 2}}, NUMA: []NUMANode{{Node: 1, Threads: 2, Slices: 3, Bytes: 4}},
	}
}

func scrape(t *testing.T, c *Collector) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

// TestNamesMayBeAnyBytes: a NIC can be called so, and the page shows it beside all others.
func TestNamesMayBeAnyBytes(t *testing.T) {
	code, body := scrape(t, New(func(context.Context) (Snapshot, error) {
		return Snapshot{NICs: []NIC{{Name: "eth\xfe"}, {Name: "eth\xff"}, {Name: "éth"}}}, nil
	}))
	for _, want := range []string{`kvpipe_nic_up{nic="\"eth\\xfe\""} 0`, `kvpipe_nic_up{nic="\"eth\\xff\""} 0`, `kvpipe_nic_up{nic="éth"} 0`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("status %d, without %s:\n%s", code, want, body)
		}
	}
}

// TestNamesMayComeTwice: a NIC that is renamed while the kernel lists links does, and names that differ may look alike; the page is there all the
// same, with the first of them.
func TestNamesMayComeTwice(t *testing.T) {
	twice := NearestNIC{"GPU0", "0000:1b:00.0", "mlx5_0", "PIX", 2}
	code, body := scrape(t, New(func(context.Context) (Snapshot, error) {
		return Snapshot{
			NICs: []NIC{{Name: "eth0", Up: true}, {Name: "eth0"}, {Name: "\xff"}, {Name: `"\xff"`}}, GPUState: "ok", GPUErrors: []GPU{{UUID: "GPU-1"}, {UUID: "GPU-1"}},
			NearestNICs: []NearestNIC{twice, twice}, Peers: []Peer{{Node: "a"}, {Node: "a", Up: true}},
		}, nil
	}))
	for _, want := range []string{`kvpipe_nic_up{nic="eth0"} 1`, `kvpipe_nic_up{nic="\"\\xff\""} 0`, `kvpipe_peer_up{peer="a"} 0`, "kvpipe_malformed_frames_total 0"} {
		if code != 200 || strings.Count(body, want) != 1 {
			t.Errorf("status %d, without %s:\n%s", code, want, ours(body))
		}
	}
}

// ours leaves out what the Go runtime and the process say.
func ours(body string) string {
	var out strings.Builder
	for l := range strings.Lines(body) {
		if strings.Contains(l, "kvpipe_") {
			out.WriteString(l)
		}
	}
	return out.String()
}

func fixed(context.Context) (Snapshot, error) { return example(), nil }

func TestPage(t *testing.T) {
	c := New(fixed)
	c.Takes.Observe(0.003)
	code, body := scrape(t, c)
	if code != 200 || !strings.Contains(body, "go_goroutines") || !strings.Contains(body, "process_resident_memory_bytes") {
		t.Fatalf("status %d, %d bytes", code, len(body))
	}
	got := ours(body)
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", page, diff)
	}
}

// TestNames: names.go has exactly the names that a page with everything shows.
func TestNames(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	ast.Inspect(f, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			name, _ := strconv.Unquote(l.Value)
			want = append(want, name)
		}
		return true
	})
	_, body := scrape(t, New(fixed))
	var got []string
	for _, m := range families(body) {
		got = append(got, m.name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names.go and the page differ (-names +page):\n%s", diff)
	}
	for _, name := range want {
		if !regexp.MustCompile(`^kvpipe_[a-z_]+$`).MatchString(name) {
			t.Errorf("%q: names begin with kvpipe_", name)
		}
	}
}

// TestNoSnapshot: while the daemon cannot answer, the scrape fails instead of showing zeros.
func TestNoSnapshot(t *testing.T) {
	c := New(func(context.Context) (Snapshot, error) { return Snapshot{}, errors.New("the driver stopped") })
	if code, body := scrape(t, c); code != 500 || !strings.Contains(body, "the driver stopped") {
		t.Errorf("status %d, %q", code, body)
	}
}

// TestEmpty: a daemon that just started shows what it has.
func TestEmpty(t *testing.T) {
	code, body := scrape(t, New(func(context.Context) (Snapshot, error) { return Snapshot{Version: "v", Node: "n"}, nil }))
	if code != 200 || !strings.Contains(body, `kvpipe_build_info{node="n",version="v"} 1`) || strings.Contains(body, CertificateExpiry) {
		t.Errorf("status %d:\n%s", code, ours(body))
	}
}

// TestNoCertificateToUse: alerts of its end see it.
func TestNoCertificateToUse(t *testing.T) {
	code, body := scrape(t, New(func(context.Context) (Snapshot, error) { return Snapshot{TLS: true}, nil }))
	if code != 200 || !strings.Contains(body, "\n"+CertificateExpiry+" 0\n") {
		t.Errorf("status %d:\n%s", code, ours(body))
	}
}
