package tcp

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// tiny is how many runs of a byte the slices of these tests have: more than are looked up at a time.
const tiny = 3*transport.AtATime + 7

// watched is memory that calls on before a part of it is looked up, and does not have that part if on returns false.
type watched struct {
	*transporttest.Memory
	mu sync.Mutex
	n  int
	on func(n int) bool // n: the how manieth part it is
}

// watch counts from 0 again.
func (w *watched) watch(on func(n int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n, w.on = 0, on
}

func (w *watched) Src(r plan.Run) ([]byte, bool) { return w.find(r) }
func (w *watched) Dst(r plan.Run) ([]byte, bool) { return w.find(r) }

func (w *watched) find(r plan.Run) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.on != nil && !w.on(w.n) {
		return nil, false
	}
	return w.Memory.Src(r)
}

// tinyPair is a transfer of one slice of single bytes between the two nodes of a lab.
type tinyPair struct {
	t            testing.TB
	p            *transporttest.Pair
	shape        transporttest.Shape
	src, dst     *watched
	sent, landed transfer.SliceKey
}

func newTinyPair(t *testing.T, n int, cfg Config, secure bool) *tinyPair {
	p := opener(cfg, 1, secure, false)(t)
	t.Cleanup(func() { p.Close(); p.SrcSink.Check(t); p.DstSink.Check(t) })
	x := &tinyPair{t: t, p: p, shape: transporttest.Bytes(t, n)}
	x.src = &watched{Memory: transporttest.NewMemory(t, x.shape.Src...)}
	x.dst = &watched{Memory: transporttest.NewMemory(t, x.shape.Dst...)}
	x.src.Fill(3)
	x.sent.Leg = transfer.Leg{Peer: "b", Epoch: epoch, Xfer: 1, End: transfer.Producer}
	x.landed.Leg = transfer.Leg{Peer: "a", Epoch: epoch, Xfer: 1, End: transfer.Consumer}
	p.Dst.Expect(transport.Job{Key: x.landed, Plan: x.shape.Plan, Mem: x.dst})
	return x
}

// move posts the slice and wants it to end so at the source and the destination.
func (x *tinyPair) move(sent, landed transfer.Reason) {
	x.t.Helper()
	x.p.Src.Post(transport.Job{Key: x.sent, Plan: x.shape.Plan, Mem: x.src})
	if got := x.p.SrcSink.Sent(x.t, x.sent); got.Reason != sent {
		x.t.Errorf("attempt %d was sent: %+v, want reason %d", x.sent.Attempt, got, sent)
	}
	if got := x.p.DstSink.Landed(x.t, x.landed); got.Reason != landed {
		x.t.Errorf("attempt %d has landed: %+v, want reason %d", x.sent.Attempt, got, landed)
	}
	x.sent.Attempt++
	x.landed.Attempt++
}

// same wants every byte to be in its place.
func (x *tinyPair) same() {
	x.t.Helper()
	for _, r := range x.shape.Plan.Pairs(0, nil) {
		from, _ := x.src.Memory.Src(r.Src())
		if to, _ := x.dst.Memory.Dst(r.Dst()); !bytes.Equal(to, from) {
			x.t.Fatalf("%+v has not landed", r)
		}
	}
}

func (x *tinyPair) fence(ends ...transfer.End) {
	x.t.Helper()
	for _, end := range ends {
		if end == transfer.Producer {
			x.p.Src.Fence(x.sent.Leg)
			x.p.SrcSink.Fenced(x.t, x.sent.Leg)
		} else {
			x.p.Dst.Fence(x.landed.Leg)
			x.p.DstSink.Fenced(x.t, x.landed.Leg)
		}
	}
}

var tinyKinds = []struct {
	name   string
	cfg    Config
	secure bool
}{
	{"plain", Config{CRC: CRCOff}, false},
	{"plain, checksums", Config{CRC: CRCOn}, false},
	{"plain, never staged", Config{CRC: CRCOff, Staged: -1}, false},
	{"tls, checksums", Config{CRC: CRCOn}, true},
}

// TestTinyBlocksNeedNoLargeBuffers: a slice of very many runs is moved some of them at a time, so it costs the two ends of a link little
// more memory than others, neither while it is moved nor afterwards.
func TestTinyBlocksNeedNoLargeBuffers(t *testing.T) {
	const runs = 1 << 18
	for _, kind := range tinyKinds {
		t.Run(kind.name, func(t *testing.T) {
			x := newTinyPair(t, runs, kind.cfg, kind.secure)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x.move(transfer.OK, transfer.OK)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
				t.Errorf("%d bytes are allocated for a slice of %d runs", n, runs)
			}
			x.same()
			x.fence(transfer.Producer, transfer.Consumer)
		})
	}
}

// TestTinyBlocksFail: whatever goes wrong when a part of such a slice has been moved, the link carries the next attempt.
func TestTinyBlocksFail(t *testing.T) {
	for _, kind := range tinyKinds {
		t.Run(kind.name, func(t *testing.T) {
			x := newTinyPair(t, tiny, kind.cfg, kind.secure)
			third := func(n int) bool { return n != 3 }
			x.src.watch(third)
			x.move(transfer.Unavailable, transfer.Corrupt)
			x.src.watch(nil)
			x.dst.watch(third)
			x.move(transfer.OK, transfer.Unavailable)
			x.dst.watch(func(n int) bool {
				if n == 3 {
					x.dst.Protect(t, sys.ProtRead)
				}
				return true
			})
			x.move(transfer.OK, transfer.Corrupt)
			x.dst.Protect(t, sys.ProtWrite)
			x.dst.watch(nil)
			x.src.watch(func(n int) bool {
				if n == 3 {
					x.src.Protect(t, sys.ProtNone)
				}
				return true
			})
			x.move(transfer.Corrupt, transfer.Corrupt)
			x.src.Protect(t, sys.ProtWrite)
			x.src.watch(nil)
			x.move(transfer.OK, transfer.OK)
			x.same()
			x.fence(transfer.Producer, transfer.Consumer)
		})
	}
}

// TestTinyBlocksAreFenced: a fence at either end takes the memory away when a part of such a slice has been moved, and the link carries the
// next transfer.
func TestTinyBlocksAreFenced(t *testing.T) {
	for _, kind := range tinyKinds {
		for _, end := range []transfer.End{transfer.Producer, transfer.Consumer} {
			t.Run(kind.name, func(t *testing.T) {
				x := newTinyPair(t, tiny, kind.cfg, kind.secure)
				at, mem, tr, sink, leg := make(chan bool), x.src, x.p.Src, x.p.SrcSink, x.sent.Leg
				want, other := transfer.Cancelled, transfer.Consumer // a frame that is fenced at its destination is sent all the same
				if end == transfer.Consumer {
					mem, tr, sink, leg = x.dst, x.p.Dst, x.p.DstSink, x.landed.Leg
					want, other = transfer.OK, transfer.Producer
				}
				mem.watch(func(n int) bool {
					if n == 3 {
						at <- true
						<-at
					} else if n > 3 {
						t.Error("memory is looked up after the fence")
					}
					return true
				})
				x.p.Src.Post(transport.Job{Key: x.sent, Plan: x.shape.Plan, Mem: x.src})
				<-at
				tr.Fence(leg)
				at <- true
				sink.Fenced(t, leg)
				if got := x.p.DstSink.Landed(t, x.landed); got.Reason != transfer.Cancelled {
					t.Errorf("it has landed: %+v", got)
				}
				if got := x.p.SrcSink.Sent(t, x.sent); got.Reason != want {
					t.Errorf("it was sent: %+v, want reason %d", got, want)
				}
				x.fence(other)
				mem.watch(nil)
				x.sent.Xfer, x.landed.Xfer = 2, 2
				x.p.Dst.Expect(transport.Job{Key: x.landed, Plan: x.shape.Plan, Mem: x.dst})
				x.move(transfer.OK, transfer.OK)
				x.same()
				x.fence(transfer.Producer, transfer.Consumer)
			})
		}
	}
}
