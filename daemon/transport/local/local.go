// Package local moves slices whose two ends are on this node: copy workers copy from one mapping to the other. When a
// node takes from itself, both legs have the same XferID, so fencing either leg stops both reads and writes.
package local

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
)

// Config is what New needs.
type Config struct {
	// Workers is how many threads copy, at least 1. GOMAXPROCS must be at least two more than that.
	Workers int
	// Nice is the niceness of those threads, 0 to 19. 10 keeps them from delaying the goroutines that answer clients.
	Nice int
	// AtOnce is the largest slice, in bytes, that Post copies itself: waking a worker would take longer. One that falls
	// into many tiny pieces takes longer than its bytes, and is left to a worker. 0: DefaultAtOnce.
	AtOnce uint64
	// Places is where workers may run; nil: there is nothing to choose.
	Places *place.Places
	Sink   transport.Sink
}

// DefaultAtOnce takes a few microseconds to copy, about as long as waking a worker.
const DefaultAtOnce = 32 << 10

// Transport is the local transport.
type Transport struct {
	cfg   Config
	sink  transport.Batcher // cfg.Sink
	queue queue
	done  sync.WaitGroup
	rate  rate

	atOnce copier     // for Post and MoveNow, which one goroutine at a time calls
	first  []plan.Run // so is this

	mu     sync.Mutex
	xfers  map[transfer.XferID]*xfer
	closed bool
}

// xfer is both legs of a transfer. It exists from the consumer's first Expect until the consumer's fence stands.
type xfer struct {
	leg  *fence.Leg
	segs map[uint32]transport.Job // what the consumer expects
}

// New starts the workers. Close ends them.
func New(cfg Config) (*Transport, error) {
	if cfg.Workers < 1 {
		return nil, fmt.Errorf("local transport: %d copy workers: must be at least 1", cfg.Workers)
	}
	if cfg.Nice < 0 || cfg.Nice > 19 {
		return nil, fmt.Errorf("local transport: niceness %d: must be 0 to 19", cfg.Nice)
	}
	if cfg.AtOnce == 0 {
		cfg.AtOnce = DefaultAtOnce
	}
	t := &Transport{cfg: cfg, sink: transport.Batch(cfg.Sink), xfers: map[transfer.XferID]*xfer{}}
	spots := cfg.Places.Count()
	t.queue.init(spots)
	for i := range cfg.Workers {
		home := place.Anywhere
		if spots > 0 {
			home = i % spots
		}
		t.done.Add(1)
		go func() { defer t.done.Done(); t.work(home) }()
	}
	return t, nil
}

// Name is "local".
func (t *Transport) Name() string { return "local" }

// Probe says yes to this node alone.
func (t *Transport) Probe(peer string) transport.Reach {
	if peer != "" {
		return transport.Reach{Reason: "local copies need both ends on one node; " + peer + " is another one"}
	}
	now := t.rate.gbps()
	return transport.Reach{OK: true, In: now, Out: now}
}

// Expect prepares for the slices of a segment: a slice that is not expected, or is fenced, is not copied. The job's Mem
// resolves its destination runs.
func (t *Transport) Expect(job transport.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.xfers[job.Key.Xfer]
	if x == nil {
		x = &xfer{leg: fence.NewLeg(t.report), segs: map[uint32]transport.Job{}}
		t.xfers[job.Key.Xfer] = x
	}
	x.segs[job.Key.Seg] = job
}

// Post copies a small slice at once and leaves others to the workers. A slice that the consumer's end does not expect
// (any more) ends with SliceSent, Cancelled, and without SliceLanded, as there is no end to land at.
func (t *Transport) Post(job transport.Job) {
	if i := job.Key.Slice; int(i) >= job.Plan.Slices() {
		t.refuse(job.Key, transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("slice %d: the plan has %d", i, job.Plan.Slices())})
		return
	}
	t.mu.Lock()
	closed := t.closed
	x := t.xfers[job.Key.Xfer]
	var dst transport.Job
	expected := false
	if x != nil {
		dst, expected = x.segs[job.Key.Seg]
	}
	t.mu.Unlock()
	if closed {
		t.refuse(job.Key, closing)
		return
	}
	tk := t.queue.spare()
	if !expected || !x.leg.Add(&tk.Slice, job.Key) {
		t.queue.recycle(tk)
		t.refuse(job.Key, transfer.Cause{Reason: transfer.Cancelled, Text: "the consumer's end does not expect this slice"})
		return
	}
	tk.job, tk.dst = job, dst.Mem
	if job.Plan.Small(job.Plan.Slice(int(job.Key.Slice)).Bytes, t.cfg.AtOnce) {
		t.rate.count(t.atOnce.do(tk))
		t.queue.recycle(tk)
		t.sink.Wake()
		return
	}
	t.queue.push(tk, t.spot(job.Plan, int(job.Key.Slice), dst.Mem))
}

// MoveNow copies a small plan as a whole, without legs. It needs no fence: nothing is touched after it returns.
func (t *Transport) MoveNow(p *plan.Plan, mem transport.Memory) bool {
	if !p.Small(p.Bytes(), t.cfg.AtOnce) {
		return false
	}
	return t.atOnce.all(p, mem, &t.rate)
}

var (
	stopped = transfer.Cause{Reason: transfer.Cancelled, Text: "the transfer was fenced"}
	closing = transfer.Cause{Reason: transfer.Closed, Text: "the daemon shuts down"}
)

// Fence ends the reads and writes of both ends. It stands when the workers inside slices of the leg have left them,
// each after at most 256 KiB more.
func (t *Transport) Fence(leg transfer.Leg) {
	t.mu.Lock()
	x := t.xfers[leg.Xfer]
	t.mu.Unlock()
	if x == nil {
		t.sink.Event(transfer.Fenced{Leg: leg})
		return
	}
	x.leg.Fence(stopped, func() {
		if leg.End == transfer.Consumer {
			t.mu.Lock()
			delete(t.xfers, leg.Xfer)
			t.mu.Unlock()
		}
		t.sink.Event(transfer.Fenced{Leg: leg})
	})
}

// Ping asks all workers. They answer between two slices.
func (t *Transport) Ping(ctx context.Context) error {
	done := t.queue.call(t.cfg.Workers)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d copy workers do not answer", t.queue.silent(), t.cfg.Workers)
	}
}

// Close ends all slices, with Closed, and the workers. Nobody may post at the same time.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	var all []*xfer
	for _, x := range t.xfers {
		all = append(all, x)
	}
	t.mu.Unlock()
	for _, x := range all {
		x.leg.Fence(closing, func() {})
	}
	t.queue.close()
	t.done.Wait()
	if len(all) > 0 {
		t.sink.Wake() // a worker that was inside a slice has left it by now
	}
	return nil
}

// report queues reports for both ends of a slice. They are seen once the caller says Wake or reports another event.
func (t *Transport) report(key transfer.SliceKey, sent, landed transfer.Cause) {
	key.End = transfer.Producer
	t.sink.Queue(transfer.SliceSent{Key: key, Cause: sent})
	key.End = transfer.Consumer
	t.sink.Queue(transfer.SliceLanded{Key: key, Cause: landed})
}

// refuse reports a slice that does not begin to the producer's end.
func (t *Transport) refuse(key transfer.SliceKey, cause transfer.Cause) {
	key.End = transfer.Producer
	t.sink.Event(transfer.SliceSent{Key: key, Cause: cause})
}
