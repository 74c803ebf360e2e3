package fake

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
)

// Transport is the transport of one node. It implements transport.Transport.
type Transport struct {
	net  *Network
	name string
	sink transport.Sink

	mu     sync.Mutex
	out    map[transfer.Leg]*fence.Leg
	in     map[transfer.Leg]*inbound
	over   map[channel]bool
	closed bool
}

type channel struct {
	peer  string
	epoch uint64
}

// inbound is a consumer's leg.
type inbound struct {
	leg    *fence.Leg
	segs   map[uint32]transport.Job
	landed map[[2]uint32]bool // segment and slice
}

func newTransport(n *Network, name string, sink transport.Sink) *Transport {
	return &Transport{net: n, name: name, sink: sink, out: map[transfer.Leg]*fence.Leg{}, in: map[transfer.Leg]*inbound{}, over: map[channel]bool{}}
}

// Name is "fake".
func (t *Transport) Name() string { return "fake" }

// Ping answers at once: the callers of Step move what is under way.
func (t *Transport) Ping(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return nil
}

// Probe says yes to every node of the network, and to this one.
func (t *Transport) Probe(peer string) transport.Reach {
	if peer != "" && t.net.node(peer) == nil {
		return transport.Reach{Reason: fmt.Sprintf("node %q is not in the network", peer)}
	}
	return transport.Reach{OK: true}
}

var (
	stopped = transfer.Cause{Reason: transfer.Cancelled, Text: "the transfer was fenced"}
	closing = transfer.Cause{Reason: transfer.Closed, Text: "the node shuts down"}
	gone    = transfer.Cause{Reason: transfer.PeerGone, Text: "the channel is down"}
	lost    = transfer.Cause{Reason: transfer.PeerGone, Text: "the link is lost"}
)

// Post puts a slice on its way.
func (t *Transport) Post(job transport.Job) {
	f := &slice{from: t, job: job}
	cause := transfer.Cause{}
	t.mu.Lock()
	leg := t.out[job.Key.Leg]
	switch {
	case t.closed:
		cause = closing
	case t.over[channel{job.Key.Peer, job.Key.Epoch}]:
		cause = gone
	case int(job.Key.Slice) >= job.Plan.Slices():
		cause = transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("slice %d: the plan has %d", job.Key.Slice, job.Plan.Slices())}
	case leg == nil:
		leg = fence.NewLeg(func(key transfer.SliceKey, sent, _ transfer.Cause) { t.sent(key, sent) })
		t.out[job.Key.Leg] = leg
	}
	t.mu.Unlock()
	if cause.Reason == transfer.OK && !leg.Add(&f.source, job.Key) {
		cause = stopped
	}
	if cause.Reason != transfer.OK {
		t.sent(job.Key, cause)
		return
	}
	t.net.add(f)
}

func (t *Transport) sent(key transfer.SliceKey, cause transfer.Cause) {
	t.sink.Event(transfer.SliceSent{Key: key, Cause: cause})
}

// Expect prepares for the slices of a segment.
func (t *Transport) Expect(job transport.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.in[job.Key.Leg]
	if in == nil {
		in = &inbound{segs: map[uint32]transport.Job{}, landed: map[[2]uint32]bool{}}
		in.leg = fence.NewLeg(func(key transfer.SliceKey, _, landed transfer.Cause) {
			t.sink.Event(transfer.SliceLanded{Key: key, Cause: landed})
		})
		t.in[job.Key.Leg] = in
	}
	in.segs[job.Key.Seg] = job
}

// Fence fences a leg, or fails to for a while.
func (t *Transport) Fence(l transfer.Leg) {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if !closed && t.net.chance(t.net.faults.FenceFail) {
		t.sink.Event(transfer.Fenced{Leg: l, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "the fence failed, as was asked for"}})
		t.net.add(&refence{t, l})
		return
	}
	t.fence(l)
}

func (t *Transport) fence(l transfer.Leg) {
	t.mu.Lock()
	leg := t.out[l]
	if in := t.in[l]; in != nil {
		leg = in.leg
	}
	t.mu.Unlock()
	stands := func() {
		t.mu.Lock()
		delete(t.out, l)
		if !t.net.faults.LateLanding {
			delete(t.in, l)
		}
		t.mu.Unlock()
		t.sink.Event(transfer.Fenced{Leg: l})
	}
	if leg == nil {
		stands()
		return
	}
	leg.Fence(stopped, stands)
}

// Close fences everything. Slices that are on their way from here end with Closed.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	var legs []*fence.Leg
	for _, l := range t.out {
		legs = append(legs, l)
	}
	for _, in := range t.in {
		legs = append(legs, in.leg)
	}
	t.mu.Unlock()
	var all sync.WaitGroup
	all.Add(len(legs))
	for _, l := range legs {
		l.Fence(closing, all.Done)
	}
	all.Wait()
	return nil
}

// down marks a channel as over.
func (t *Transport) down(peer string, epoch uint64) {
	t.mu.Lock()
	t.over[channel{peer, epoch}] = true
	t.mu.Unlock()
}

// refence is a fence that failed before.
type refence struct {
	t   *Transport
	leg transfer.Leg
}

func (r *refence) fly() bool { r.t.fence(r.leg); return false }

func (r *refence) lose(string, string, uint64) bool { return false }
