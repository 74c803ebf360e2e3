package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// bench runs a measurement through the admin interface.
func bench(n *node, peer string, o admin.BenchOptions) (rows []admin.BenchRow, err error) {
	n.t.Helper()
	body, err := n.ctl.Post(n.t.Context(), "bench", url.Values{"peer": {peer}}, o)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var r admin.BenchRow
		switch err := dec.Decode(&r); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			n.t.Fatal(err)
		}
		rows = append(rows, r)
	}
}

// quick is as short as a measurement can be: one hand-over a row.
var quick = admin.BenchOptions{Seconds: 1e-9, Sizes: []uint64{64 << 10, 1 << 20}}

// checkRows: the transport measured every shape.
func checkRows(t *testing.T, rows []admin.BenchRow, transport string) {
	t.Helper()
	var got []admin.BenchRow
	for _, r := range rows {
		if r.Transport == transport {
			got = append(got, r)
		}
	}
	want := []struct {
		bytes  uint64
		blocks int
	}{{4 << 10, 1}, {64 << 10, 512}, {1 << 20, 32}}
	if len(got) != len(want) {
		t.Fatalf("rows of %s: %+v, want %d of them", transport, got, len(want))
	}
	for i, r := range got {
		if r.Error != "" || r.Bytes != want[i].bytes || r.Blocks != want[i].blocks || r.Count < 1 || r.GBps <= 0 || r.P50 <= 0 || r.P99 < r.P50 {
			t.Errorf("row %d: %+v", i, r)
		}
	}
}

// given back: nothing of a measurement is left at a node.
func (n *node) clean() {
	n.t.Helper()
	eventually(n.t, "node "+n.cfg.Node+" gave everything back", func() bool {
		s := get[admin.Status](n, "status")
		m, err := view{n.Daemon}.look(n.t.Context())
		n.bench.mu.Lock()
		served := len(n.bench.serving)
		n.bench.mu.Unlock()
		return err == nil && len(m.Sessions) == 0 && s.Counts.Offers == 0 && s.Counts.HoldsShared == 0 && s.Counts.HoldsExclusive == 0 &&
			len(*n.bench.sessions.Load()) == 0 && served == 0
	})
}

func TestBenchWithinANode(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	rows, err := bench(n, "", quick)
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, rows, "local")
	if last := rows[len(rows)-1]; last.Transport != "tcp" || !strings.Contains(last.Error, "another node") && last.Error == "" {
		t.Errorf("tcp within a node: %+v, want a reason", last)
	}
	n.clean()
}

// TestBothEndsKnowTheRate: who receives as well as who sends, each in the direction in which something moved.
func TestBothEndsKnowTheRate(t *testing.T) {
	a, b := pair(t, nil)
	if _, err := bench(a, "b", quick); err != nil {
		t.Fatal(err)
	}
	known := func(n *node, peer string, in, out bool) func() bool {
		return func() bool {
			e, p := n.explains(peer), get[[]admin.Peer](n, "peers")[0]
			return e.GBpsIn > 0 == in && e.GBpsOut > 0 == out && e.GBps == max(e.GBpsIn, e.GBpsOut) &&
				p.GBpsIn == e.GBpsIn && p.GBpsOut == e.GBpsOut && p.GBps == e.GBps
		}
	}
	eventually(t, "a rate of what came", known(a, "b", true, false))
	eventually(t, "a rate of what was sent", known(b, "a", false, true))
}

func TestBenchToAPeer(t *testing.T) {
	a, b := pair(t, nil)
	for _, n := range []struct {
		*node
		peer string
	}{{a, "b"}, {b, "a"}} {
		rows, err := bench(n.node, n.peer, quick)
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, rows, "tcp")
		if rows[0].Transport != "local" || rows[0].Error == "" {
			t.Errorf("local to a peer: %+v, want a reason", rows[0])
		}
	}
	a.clean()
	b.clean()
	if m := a.tally.bytes(); m != 0 {
		t.Errorf("%d bytes of measurements count as moved for clients", m)
	}
}

func TestBenchRefusals(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	for _, c := range []struct {
		peer string
		o    admin.BenchOptions
		want string
	}{
		{"", admin.BenchOptions{Seconds: -1}, "seconds: -1: give a number above 0, at most 60"},
		{"", admin.BenchOptions{Sizes: []uint64{5000}}, "sizes: 5000: give powers of two from 64 to 33554432"},
		{"", admin.BenchOptions{Sizes: make([]uint64, 17)}, "sizes: 17 of them: give at most 16"},
		{"nobody", quick, `peer "nobody" is not known (known: none)`},
	} {
		if _, err := bench(n, c.peer, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %+v: %v, want %q", c.peer, c.o, err, c.want)
		}
	}
	n.bench.asking.Lock()
	_, err := bench(n, "", quick)
	n.bench.asking.Unlock()
	if err == nil || !strings.Contains(err.Error(), "another measurement runs") {
		t.Errorf("a second measurement: %v", err)
	}
}

// TestBenchNeedsAuthentication: peers without certificates get nothing to measure with.
func TestBenchNeedsAuthentication(t *testing.T) {
	a, _ := pair(t, func(c *config.Config) { c.Insecure = true })
	_, err := bench(a, "b", quick)
	if err == nil || !strings.Contains(err.Error(), "authenticated peers alone") {
		t.Errorf("bench over an insecure channel: %v", err)
	}
}

// TestBenchNamesItsPeerOnce, also where the error does.
func TestBenchNamesItsPeerOnce(t *testing.T) {
	for text, want := range map[string]string{
		"it left":                             `peer "b": it left`,
		`peer "b" was not reached within 10s`: `peer "b" was not reached within 10s`,
	} {
		if got := aboutPeer("b", errors.New(text)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestBenchIsBounded: a peer gets two measurements at a time, and what it leaves goes with its lease or its drop.
func TestBenchIsBounded(t *testing.T) {
	a, b := pair(t, nil)
	ctx := t.Context()
	if err := a.bench.meet(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	x, err := a.bench.open(benchSpec{size: 4096, blocks: 1}, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.bench.close(x)
	want := func(s benchSpec) (*measuring, error) {
		m := &measuring{b: a.bench, x: x, peer: "b", spec: s, token: newToken()}
		return m, m.watch(ctx, s.offerKey(1))
	}
	spec := benchSpec{transport: "tcp", size: 1 << 20, blocks: 32, name: 1}
	first, err := want(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.watch(ctx, spec.offerKey(1)); err != nil {
		t.Errorf("the same request again: %v", err)
	}
	spec.name = 2
	if _, err := want(spec); err != nil {
		t.Fatal(err)
	}
	spec.name = 3
	if _, err := want(spec); err == nil || !strings.Contains(err.Error(), "serves 2 measurements already") {
		t.Errorf("a third measurement: %v", err)
	}
	x.told(transfer.Complete{UserData: 99}) // something late that nobody waits for
	first.user = 100
	first.drop() // which waits a second for it
	eventually(t, "one is served in place of the one that was dropped", func() bool { _, err := want(spec); return err == nil })
	for _, s := range []benchSpec{{transport: "tcp", size: 1 << 20, blocks: 33}, {transport: "tcp", size: 100, blocks: 1}, {transport: "tcp", size: 4096, blocks: 0}} {
		if _, err := want(s); err == nil {
			t.Errorf("%+v is served", s)
		}
	}
	b.bench.mu.Lock()
	for _, s := range b.bench.serving {
		s.lease.Reset(1) // as if its time had come
	}
	b.bench.mu.Unlock()
	b.clean()
}

// TestBenchOnANodeThatDrains or stops says so of that node, and nothing of the peer, who has not been asked.
func TestBenchOnANodeThatDrains(t *testing.T) {
	a, b := pair(t, nil)
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := bench(b, "a", quick); err == nil || !strings.HasPrefix(err.Error(), `the daemon of node "b" is draining`) || strings.Contains(err.Error(), "explain") {
		t.Errorf("it drains: %v", err)
	}
	if rows, err := bench(a, "b", quick); err != nil || !strings.Contains(rows[1].Error, `the daemon of node "b" is draining`) {
		t.Errorf("its peer: %+v, %v", rows, err)
	}
	b.bench.end()
	b.bench.asking.Lock() // as who waits for the end of measurements does
	_, err := bench(b, "a", quick)
	b.bench.asking.Unlock()
	if err == nil || err.Error() != errStopping.Error() {
		t.Errorf("it stops: %v", err)
	}
}

// slow returns an address at which connections lead to another one, and bring back at most 5 MB/s from there.
func slow(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			all.Go(func() {
				defer near.Close()
				tick := time.NewTicker(13 * time.Millisecond)
				defer tick.Stop()
				for b := make([]byte, 64<<10); ; <-tick.C {
					n, err := far.Read(b)
					if err != nil {
						return
					}
					if _, err := near.Write(b[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// TestBenchOverASlowLink: a hand-over that takes too long ends because of that, and not because the peer forgets who measures. A machine that
// stands still for as long as the peer remembers tries again.
func TestBenchOverASlowLink(t *testing.T) {
	ca := t.TempDir()
	a := start(t, "a", ca, nil)
	b := start(t, "b", ca, func(c *config.Config) { c.Peers.Nodes = map[string]string{"a": slow(t, a.listenAddr())} })
	a.bench.lease, b.bench.lease = 2*time.Second, 2*time.Second
	for tries := 0; ; tries++ {
		rows, err := bench(b, "a", quick)
		if err != nil {
			t.Fatal(err)
		}
		last := rows[len(rows)-1]
		if last.Transport == "tcp" && last.Blocks == 512 && strings.Contains(last.Error, "slices were in place after 1.6s") {
			return
		}
		if tries == 4 {
			t.Fatalf("32 MiB by 5 MB/s a link: %+v, want how far they came before the lease ends", last)
		}
	}
}

// FuzzBenchKey: a key that a peer wrote is understood only within the limits, and then is what its owner writes.
func FuzzBenchKey(f *testing.F) {
	s := benchSpec{transport: "tcp", size: 4096, blocks: 32, name: 7}
	f.Add(s.key())
	f.Add(s.offerKey(3))
	f.Add(benchPrefix + "tcp/100/1/0")
	f.Add(benchPrefix + "//-1/")
	f.Fuzz(func(t *testing.T, key string) {
		s, err := parseBench(key)
		if err != nil {
			return
		}
		if s.blocks < 1 || s.size < 64 || s.bytes() > benchBytes {
			t.Errorf("%q: %+v is accepted", key, s)
		}
		if again, err := parseBench(s.key()); err != nil || again != s {
			t.Errorf("%q is %+v, and its own key %q is %+v: %v", key, s, s.key(), again, err)
		}
	})
}

// TestBenchIsBoundedAtOnce: of many that are asked for at the same time no more are begun than are served.
func TestBenchIsBoundedAtOnce(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	var admitted atomic.Int32
	var asking sync.WaitGroup
	for i := range uint64(32) {
		asking.Go(func() {
			name := benchName{"peer", benchSpec{transport: "tcp", size: 4096, blocks: 1024, name: i / 2}} // each is asked for again
			switch s, cause := n.bench.admit(name); {
			case s != nil:
				admitted.Add(1)
			case cause.Reason != transfer.Busy:
				t.Errorf("%d: %v", i, cause)
			}
		})
	}
	asking.Wait()
	if got, opened := admitted.Load(), n.bench.next.Load(); got != 2*benchServes || opened != benchServes {
		t.Errorf("%d requests admitted with %d sessions, want %d with %d", got, opened, 2*benchServes, benchServes)
	}
}

// TestBenchStopsWithTheDaemon: a measurement under way does not keep its daemon, nor the peer's, from stopping.
func TestBenchStopsWithTheDaemon(t *testing.T) {
	for _, first := range []string{"asker", "server"} {
		t.Run(first, func(t *testing.T) {
			a, b := pair(t, nil)
			running, done := make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				started := false
				done <- view{a.Daemon}.Bench(ctx, "b", admin.BenchOptions{Seconds: 60, Sizes: []uint64{4096}}, func(r admin.BenchRow) {
					if !started {
						started = true
						close(running)
					}
				})
			}()
			select { // the first row is that of local, which cannot
			case <-running:
			case err := <-done:
				t.Fatalf("ended before it began: %v", err)
			}
			if first == "asker" {
				a.stop()
			} else {
				b.stop()
				cancel()
			}
			<-done
			a.stop()
			b.stop()
		})
	}
}
