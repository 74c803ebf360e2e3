package driver

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

func TestATakeWithinTheNodeMovesTheBlocks(t *testing.T) {
	for _, tc := range []struct{ size, blocks int }{
		{4 << 10, 1},     // while the machine waits
		{64, atOnce + 1}, // too many blocks for that, but few bytes: when it is posted
		{1 << 20, 1},     // by a worker
	} {
		t.Run(fmt.Sprintf("%d of %d", tc.blocks, tc.size), func(t *testing.T) {
			r, size, n := newRig(t, nil), tc.size, tc.blocks
			r.session(1, "prefill", 2*n, size, 0xaa)
			dst := r.session(2, "decode", 2*n, size, 0)
			var from, to []uint32
			for i := range n {
				from, to = append(from, uint32(n-1-i)), append(to, uint32(n+i))
			}
			offer := r.offer(1, "k", from...)
			take := r.take(2, "k", to...)
			got := r.completions(2)
			for _, op := range []uint64{offer, take} {
				if c := got[op]; c.Status != transfer.Done || c.More {
					t.Errorf("operation %d: %+v", op, c)
				}
			}
			if want := bytes.Repeat([]byte{0xaa}, n*size); !bytes.Equal(dst[n*size:], want) || bytes.Contains(dst[:n*size], []byte{0xaa}) {
				t.Error("the wrong bytes moved")
			}
		})
	}
}

func TestLargePlansAreMadeByWorkers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PlanInline = 0 })
	r.session(1, "prefill", 4, 64<<10, 0xaa)
	dst := r.session(2, "decode", 4, 64<<10, 0)
	r.offer(1, "k", 0, 1, 2, 3)
	r.take(2, "k", 3, 2, 1, 0)
	r.completions(2)
	if bytes.Contains(dst, []byte{0}) {
		t.Error("not everything moved")
	}
}

// afar is a transport that reaches other nodes alone.
type afar struct{ transport.Transport }

func (afar) Name() string                 { return "tcp" }
func (afar) Probe(string) transport.Reach { return transport.Reach{Reason: "both ends are here"} }

// TestWithoutATransportATakeSaysWhy: why none of those that are allowed serves, and which are not allowed.
func TestWithoutATransportATakeSaysWhy(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Transports = []transport.Transport{afar{}} })
	r.session(1, "prefill", 1, 4096, 0xaa)
	r.session(2, "decode", 1, 4096, 0)
	r.offer(1, "k", 0)
	take := r.take(2, "k", 0)
	c := r.completions(1)[take]
	const want = `no transport reaches this node: tcp: both ends are here; local: not on the allow-list: add it to transports in the configuration of node "n" (now ["tcp"])`
	if c.Status != transfer.Failed || c.Reason != transfer.Unavailable || c.Text != want {
		t.Errorf("%+v, want %s", c, want)
	}
}

// Whoever pushes last must see its event worked off, whichever goroutine has the turn at that moment.
func TestNoEventIsLeftLying(t *testing.T) {
	r := newRig(t, nil)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 2000 {
				done := make(chan struct{})
				if (g+i)%2 == 0 {
					r.Post(func() { close(done) })
				} else {
					r.queue.push(item{fn: func() { close(done) }})
					r.Flush()
				}
				<-done
			}
		}()
	}
	wg.Wait()
}

// timed is a machine that notes the time of its last step.
type timed struct {
	scripted
	at transfer.Time
}

func (m *timed) Step(now transfer.Time, _ transfer.Event) []transfer.Effect { m.at = now; return nil }

// TestAnEventHasItsOwnTime: however long nothing happened before it.
func TestAnEventHasItsOwnTime(t *testing.T) {
	m := new(timed)
	d := New(Config{Machine: m, Sessions: m, Peers: m})
	for range 2 {
		d.start = d.start.Add(-time.Hour)
		before := d.Now()
		d.Queue(transfer.Tick{})
		d.Flush()
		if m.at < before {
			t.Errorf("an event of %v is handled at %v", time.Duration(before), time.Duration(m.at))
		}
	}
}

// TestWakeHasOthersRunWhatIsQueued: the caller does not run it itself.
func TestWakeHasOthersRunWhatIsQueued(t *testing.T) {
	r := newRig(t, nil)
	done := make(chan struct{})
	r.QueueFunc(func() { close(done) })
	r.Wake()
	<-done
}

func TestAfterItsEndTheDriverRunsNothing(t *testing.T) {
	d := New(Config{Machine: transfer.New(transfer.Config{Node: "n", Random: func() uint64 { return 1 }}), Sessions: &clients{}, Peers: &nobody{}})
	ctx, stop := context.WithCancel(context.Background())
	stop()
	d.Run(ctx)
	d.Post(func() { t.Error("ran") })
	d.Flush()
	if err := d.Do(context.Background(), func() { t.Error("ran") }); err == nil {
		t.Error("Do said nothing")
	}
}

func BenchmarkSmallHandOver(b *testing.B) {
	r := newRig(b, nil)
	r.session(1, "prefill", 1, 4096, 0xaa)
	r.session(2, "decode", 1, 4096, 0)
	r.completionsOff()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.offer(1, "k", 0)
		r.take(2, "k", 0)
		r.Event(transfer.CreditsReturned{Session: 1, N: 3})
		r.Event(transfer.CreditsReturned{Session: 2, N: 3})
	}
}

// completionsOff throws completions away, those of the driver's end too.
func (r *rig) completionsOff() { r.Post(func() { r.clients.done = nil }) }

// BenchmarkSmallTake is the take's part of it: offers lie there already, as they do when an engine asks for them.
func BenchmarkSmallTake(b *testing.B) {
	const many = 1000
	r := newRig(b, nil)
	r.session(1, "prefill", 1, 4096, 0xaa)
	r.session(2, "decode", 1, 4096, 0)
	r.completionsOff()
	b.ReportAllocs()
	b.StopTimer()
	for left := b.N; left > 0; left -= many {
		for i := range many {
			r.offer(1, keys[i], 0)
		}
		r.Event(transfer.CreditsReturned{Session: 1, N: 3 * many})
		b.StartTimer()
		for i := range min(left, many) {
			r.take(2, keys[i], 0)
		}
		b.StopTimer()
		r.Event(transfer.CreditsReturned{Session: 2, N: 3 * many})
		for i := min(left, many); i < many; i++ {
			r.take(2, keys[i], 0)
		}
	}
}

var keys = func() (k [1000]string) {
	for i := range k {
		k[i] = fmt.Sprint("k", i)
	}
	return k
}()
