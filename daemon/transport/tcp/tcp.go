package tcp

import (
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
)

// Transport is the tcp transport. It implements transport.Transport and transport.LinkUser.
type Transport struct {
	cfg   Config
	sink  transport.Batcher // cfg.Sink
	lot   lot               // threads that links may keep
	crowd crowd             // sockets of plain links that move data now

	mu       sync.Mutex
	source   transport.LinkSource
	channels map[channelKey]*channel
	up       map[string]uint64 // per peer: the epoch of its working channel
	over     map[string]ended  // per peer: the channel that ended last
	out      map[transfer.Leg]*fence.Leg
	in       map[transfer.Leg]*inbound
	peers    map[string]*counters
	past     past // sums over forgotten peers
	closed   bool
}

// New returns a transport without links; they arrive through LinkUp. Call it once the process runs on the CPUs on which
// it will stay.
func New(cfg Config) *Transport {
	cfg.fill()
	t := &Transport{
		cfg:      cfg,
		sink:     transport.Batch(cfg.Sink),
		lot:      lot{threads: cfg.Threads},
		source:   cfg.Source,
		channels: map[channelKey]*channel{},
		up:       map[string]uint64{},
		over:     map[string]ended{},
		out:      map[transfer.Leg]*fence.Leg{},
		in:       map[transfer.Leg]*inbound{},
		peers:    map[string]*counters{},
	}
	t.crowd.init()
	return t
}

// SetSource sets who reopens lost links, for a source that is made after the transport.
func (t *Transport) SetSource(s transport.LinkSource) {
	t.mu.Lock()
	t.source = s
	t.mu.Unlock()
}

// Name is "tcp".
func (t *Transport) Name() string { return "tcp" }

// Probe says yes to every node whose channel is not known to be down. Links of a live channel that are lost, or have
// not come yet, are still expected.
func (t *Transport) Probe(peer string) transport.Reach {
	if peer == "" {
		return transport.Reach{Reason: "tcp moves between nodes; both ends are on this one"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, up := t.up[peer]
	_, was := t.over[peer]
	for key, ch := range t.channels {
		if key.peer == peer {
			in, out := ch.gbps()
			return transport.Reach{OK: true, In: in, Out: out}
		}
	}
	if was && !up {
		return transport.Reach{Reason: "the channel to " + peer + " is down"}
	}
	return transport.Reach{OK: true}
}

// Post queues a slice for the links of its channel. It waits there while the channel has no link.
func (t *Transport) Post(job transport.Job) {
	key := job.Key
	if cause := check(job); cause.Reason != transfer.OK {
		t.cfg.Sink.Event(transfer.SliceSent{Key: key, Cause: cause})
		return
	}
	t.mu.Lock()
	if cause := t.usable(key.Leg); cause.Reason != transfer.OK {
		t.mu.Unlock()
		t.cfg.Sink.Event(transfer.SliceSent{Key: key, Cause: cause})
		return
	}
	leg := t.out[key.Leg]
	if leg == nil {
		leg = fence.NewLeg(t.reportSent)
		t.out[key.Leg] = leg
	}
	ch := t.channel(channelKey{key.Peer, key.Epoch})
	t.mu.Unlock()
	ch.post(leg, job)
}

func check(job transport.Job) transfer.Cause {
	i := int(job.Key.Slice)
	if n := job.Plan.Slices(); i >= n {
		return transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("slice %d: the plan has %d", i, n)}
	}
	if n := job.Plan.Slice(i).Bytes; n == 0 || n > maxLength {
		return transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("slice %d: %d bytes: tcp moves 1 to %d at once", i, n, maxLength)}
	}
	return transfer.Cause{}
}

// usable says whether slices of that leg can be sent at all; if not, the cause says why. It is called with the lock
// held.
func (t *Transport) usable(l transfer.Leg) transfer.Cause {
	if t.closed {
		return closing
	}
	if over, ok := t.over[l.Peer]; ok && over.epoch == l.Epoch {
		return channelDown
	}
	return transfer.Cause{}
}

var (
	stopped     = transfer.Cause{Reason: transfer.Cancelled, Text: "the transfer was fenced"}
	closing     = transfer.Cause{Reason: transfer.Closed, Text: "the daemon shuts down"}
	channelDown = transfer.Cause{Reason: transfer.PeerGone, Text: "the channel is down"}
)

func (t *Transport) reportSent(key transfer.SliceKey, cause, _ transfer.Cause) {
	t.report(transfer.SliceSent{Key: key, Cause: cause}, cause)
}

func (t *Transport) reportLanded(key transfer.SliceKey, _, cause transfer.Cause) {
	t.report(transfer.SliceLanded{Key: key, Cause: cause}, cause)
}

// report queues successes: only senders and receivers report them, and they flush afterwards. Anything else may come
// from any goroutine, so it is sent on at once.
func (t *Transport) report(ev transfer.Event, cause transfer.Cause) {
	if cause.Reason == transfer.OK {
		t.sink.Queue(ev)
	} else {
		t.sink.Event(ev)
	}
}

// Expect prepares for the slices of a segment.
func (t *Transport) Expect(job transport.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.in[job.Key.Leg]
	if in == nil {
		in = &inbound{leg: fence.NewLeg(t.reportLanded), segs: map[uint32]*segment{}}
		t.in[job.Key.Leg] = in
	}
	if in.segs[job.Key.Seg] == nil {
		in.segs[job.Key.Seg] = newSegment(job)
	}
}

// Fence takes the leg's memory from all links. It stands once the system calls inside that memory, if any, have
// returned. None of them waits for the peer.
func (t *Transport) Fence(l transfer.Leg) {
	t.mu.Lock()
	var leg *fence.Leg
	if in := t.in[l]; in != nil {
		leg = in.leg
	} else {
		leg = t.out[l]
	}
	ch := t.channels[channelKey{l.Peer, l.Epoch}]
	t.mu.Unlock()
	if leg == nil {
		t.cfg.Sink.Event(transfer.Fenced{Leg: l})
		return
	}
	leg.Fence(stopped, func() {
		t.mu.Lock()
		delete(t.in, l)
		delete(t.out, l)
		t.mu.Unlock()
		t.cfg.Sink.Event(transfer.Fenced{Leg: l})
	})
	if ch != nil && l.End == transfer.Producer {
		ch.sweep(leg)
		t.forget(ch)
	}
}

// Close closes all links. Slices in flight end with Closed. Nobody may post at the same time.
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
	var chans []*channel
	for key, ch := range t.channels {
		chans = append(chans, ch)
		delete(t.channels, key)
	}
	t.mu.Unlock()
	for _, l := range legs {
		l.Fence(closing, func() {})
	}
	for _, ch := range chans {
		ch.close(closing)
	}
	t.lot.close()
	return nil
}
