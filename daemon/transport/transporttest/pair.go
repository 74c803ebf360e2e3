package transporttest

import (
	"bytes"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// Pair is two ends between which slices move. Both are the same when the transport works within a node.
type Pair struct {
	Src, Dst         transport.Transport
	SrcSink, DstSink *Recorder
	// SrcPeer is the destination's name at the source, DstPeer the source's name at the destination. Both are "" within
	// a node.
	SrcPeer, DstPeer string
	Epoch            uint64
	// KillLinks breaks all data links at a moment that the suite chooses, and returns how many there were. New ones
	// come up by themselves. nil: there are no links.
	KillLinks func() int
	// Down ends the channel for both ends. nil: there is no channel.
	Down func()
	// Brief shortens tests with many repetitions, for variants of what has been tested at length.
	Brief bool
	// Close closes both transports. It may be called twice.
	Close func()

	xfer  transfer.XferID
	probe *hand // see settle
}

// Open makes a new pair. It reports failures to t.
type Open func(t testing.TB) *Pair

// hand is one transfer.
type hand struct {
	t          testing.TB
	p          *Pair
	s          Shape
	src, dst   *Memory
	prod, cons transfer.Leg
}

// begin makes a transfer of that shape, in memory of its own. It does not expect it yet.
func (p *Pair) begin(t testing.TB, s Shape) *hand {
	return p.beginIn(t, s, NewMemory(t, s.Src...), NewMemory(t, s.Dst...))
}

func (p *Pair) beginIn(t testing.TB, s Shape, src, dst *Memory) *hand {
	p.xfer++
	h := &hand{t: t, p: p, s: s, src: src, dst: dst}
	h.prod = transfer.Leg{Peer: p.SrcPeer, Epoch: p.Epoch, Xfer: p.xfer, End: transfer.Producer}
	h.cons = transfer.Leg{Peer: p.DstPeer, Epoch: p.Epoch, Xfer: p.xfer, End: transfer.Consumer}
	return h
}

func (h *hand) sentKey(i, attempt int) transfer.SliceKey {
	return transfer.SliceKey{Leg: h.prod, Slice: uint32(i), Attempt: uint32(attempt)}
}

func (h *hand) landedKey(i, attempt int) transfer.SliceKey {
	return transfer.SliceKey{Leg: h.cons, Slice: uint32(i), Attempt: uint32(attempt)}
}

func (h *hand) expect() {
	h.p.Dst.Expect(transport.Job{Key: transfer.SliceKey{Leg: h.cons}, Plan: h.s.Plan, Mem: h.dst})
}

func (h *hand) post(i, attempt int) {
	h.p.Src.Post(transport.Job{Key: h.sentKey(i, attempt), Plan: h.s.Plan, Mem: h.src})
}

func (h *hand) postAll() {
	for i := range h.s.Plan.Slices() {
		h.post(i, 0)
	}
}

// landAll waits until every slice was sent and has landed.
func (h *hand) landAll() {
	h.t.Helper()
	for i := range h.s.Plan.Slices() {
		h.want(h.p.SrcSink.Sent(h.t, h.sentKey(i, 0)), transfer.OK, "SliceSent", i)
		h.want(h.p.DstSink.Landed(h.t, h.landedKey(i, 0)), transfer.OK, "SliceLanded", i)
	}
}

func (h *hand) want(c transfer.Cause, reason transfer.Reason, what string, slice int) {
	h.t.Helper()
	if c.Reason != reason {
		h.t.Fatalf("%s of slice %d: %+v, want reason %d", what, slice, c, reason)
	}
	if reason != transfer.OK && c.Text == "" {
		h.t.Fatalf("%s of slice %d: reason %d without a text", what, slice, reason)
	}
}

// fence fences the consumer's and then the producer's leg.
func (h *hand) fence() {
	h.t.Helper()
	h.fenceConsumer()
	h.fenceProducer()
}

func (h *hand) fenceConsumer() {
	h.t.Helper()
	h.p.Dst.Fence(h.cons)
	h.p.DstSink.Fenced(h.t, h.cons)
}

func (h *hand) fenceProducer() {
	h.t.Helper()
	h.p.Src.Fence(h.prod)
	h.p.SrcSink.Fenced(h.t, h.prod)
}

// expected returns what the destination must hold when those slices have landed on top of before.
func (h *hand) expected(before [][]byte, slices ...int) [][]byte {
	for _, i := range slices {
		for _, r := range h.s.Plan.Pairs(i, nil) {
			copy(before[r.DstRank][r.DstOff:][:r.Len], h.src.ranks[r.SrcRank][r.SrcOff:][:r.Len])
		}
	}
	return before
}

func (h *hand) all() []int {
	all := make([]int, h.s.Plan.Slices())
	for i := range all {
		all[i] = i
	}
	return all
}

func clone(m *Memory) (out [][]byte) {
	for _, b := range m.ranks {
		out = append(out, bytes.Clone(b))
	}
	return out
}

// same fails the test unless the destination holds exactly want.
func (h *hand) same(want [][]byte) {
	h.t.Helper()
	for r, b := range h.dst.ranks {
		if bytes.Equal(b, want[r]) {
			continue
		}
		for i := range b {
			if b[i] != want[r][i] {
				h.t.Fatalf("rank %d, byte %d: %#x, want %#x", r, i, b[i], want[r][i])
			}
		}
	}
}
