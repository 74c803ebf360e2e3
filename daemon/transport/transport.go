// Package transport defines the seam between the transfer machine's driver and what moves bytes. An implementation
// says what it can reach, posts planned slices, reports each slice's end once, and fences. transporttest is the
// suite that every implementation passes.
package transport

import (
	"context"
	"fmt"
	"net"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Memory resolves the runs of one leg to this node's mappings. The bytes stay mapped until the leg's Forget. Safe for
// concurrent use. A run is any part of a region; ok is false when the region is gone, or smaller.
type Memory interface {
	Src(r plan.Run) (b []byte, ok bool)
	Dst(r plan.Run) (b []byte, ok bool)
}

// Gone is why a slice ends whose run Memory does not find. side is "source" or "destination".
func Gone(side string, r plan.Run) transfer.Cause {
	return transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("%s region %#x of rank %d is gone", side, uint64(r.Region), r.Rank)}
}

// Job is one slice to move (producer's end), or a whole segment to accept (consumer's end; Key.Slice and Attempt unused).
type Job struct {
	Key  transfer.SliceKey
	Plan *plan.Plan
	Mem  Memory
}

// Sink takes what happened. Its methods never block for long and may be called from any goroutine; SliceSent and
// SliceLanded once per slice attempt and end, Fenced once per Fence, after all of that leg's slice reports.
type Sink interface {
	Event(ev transfer.Event)
}

// Batcher is a Sink that prefers several events at once: those of Queue may lie until Flush or Wake. Flush may work them off on the
// calling goroutine, and so is called without locks: that saves waking another one on a processor that is busy moving bytes. Wake leaves
// them to another goroutine: it is for threads of low priority, on which everybody would wait.
type Batcher interface {
	Sink
	Queue(ev transfer.Event)
	Flush()
	Wake()
}

// Batch returns the sink as a Batcher, which has no better way than Event when the sink has none.
func Batch(s Sink) Batcher {
	if b, ok := s.(Batcher); ok {
		return b
	}
	return oneByOne{s}
}

type oneByOne struct{ Sink }

func (o oneByOne) Queue(ev transfer.Event) { o.Event(ev) }
func (oneByOne) Flush()                    {}
func (oneByOne) Wake()                     {}

// Reach says whether a transport can serve a pair of nodes, and if not why.
type Reach struct {
	OK      bool
	Reason  string  // of "no": names what is missing and what to do
	In, Out float64 // measured rates of recent slices from there and to there, 10^9 bytes a second, 0 unknown; the same within the node
}

// Transport moves slices. Post, Expect and Fence do not block; they are called by one goroutine at a time, whose turn it is to run the driver.
type Transport interface {
	// Name as in the configuration's allow-list: "local", "tcp", ...
	Name() string
	// Probe tells whether slices can move between this node and peer ("" is this node). Cheap, any goroutine.
	Probe(peer string) Reach
	// Post starts moving a slice whose source is here. Ends with SliceSent. When both ends are here also with SliceLanded, whose
	// leg is the consumer's, unless that leg does not expect the slice (any more).
	Post(job Job)
	// Expect makes ready for the segment's slices: those that arrive before it, after Fence, or that the plan does not have are
	// discarded and never touch memory. Each slice that arrives ends with SliceLanded.
	Expect(job Job)
	// Fence ends a leg: after the Fenced event no byte of it is read (Producer) or lands (Consumer). Posted slices that did not
	// start are reported with Cancelled. Needs no answer from the peer.
	Fence(leg transfer.Leg)
	// Ping returns nil when every worker has shown within ctx that it still goes on: by an answer, or, where it waits for a peer, by
	// waiting or having come further since the last Ping. The error says which did not. For one goroutine.
	Ping(ctx context.Context) error
	// Close stops all workers; everything is fenced when it returns.
	Close() error
}

// Direct is a Transport that can also move a small plan while its caller waits.
type Direct interface {
	Transport
	// MoveNow copies all of a plan whose two ends are here and returns true when every byte is in place. False: it is too large
	// to wait for, or not all of it could be copied; then some bytes may have been. Called as Post is.
	MoveNow(p *plan.Plan, mem Memory) bool
}

// Link is a data connection that belongs to an authenticated channel. Full duplex; whoever holds it closes it.
type Link struct {
	Conn  net.Conn     // what to read and write (TLS or plain)
	TCP   *net.TCPConn // the bare connection when Conn is not encrypted, for readv and writev; else nil
	Peer  string       // node name
	Epoch uint64       // of the channel
	Index int          // stream number, 0 .. n-1
	Here  bool         // both ends are on one machine, known by more than their addresses
}

// Loopback tells whether that is an address of this host's alone. What is sent there may go on to another host, by way of a forwarder.
func Loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// LinkUser is told about the links of every channel. Implemented by transports that need connections; called by the peer package.
type LinkUser interface {
	// ChannelUp: the channel to peer works, and its links come: they are tried for until there are as many as are wanted. Until the first
	// one, what is posted waits.
	ChannelUp(peer string, epoch uint64)
	// LinkUp hands over a link. The user owns it until it closes it or LinkDown (channel over) told it to.
	LinkUp(l *Link)
	// LinksDown: the channel of that epoch is over, or never came up. Returns when no byte of its links is landing any more.
	LinksDown(peer string, epoch uint64)
}

// LinkSource re-opens a lost link of a live channel. Implemented by the peer package.
type LinkSource interface {
	// Redial says that a link is lost and asks for another in its place, unless that has come already; the side that dialed the channel
	// dials. The link comes by LinkUp.
	Redial(ctx context.Context, lost *Link)
}
