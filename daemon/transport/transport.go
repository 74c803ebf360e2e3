// Package transport defines the seam between the transfer machine's driver and the code that moves bytes. An
// implementation says which nodes it can reach, posts planned slices, reports the end of each slice once, and fences.
// Every implementation passes the suite in transporttest.
package transport

import (
	"context"
	"fmt"
	"net"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Memory finds this node's mapping of a leg's runs. The bytes stay mapped until the driver forgets the leg
// (transfer.Forget). Safe for concurrent use. A run is any part of a region; ok is false when the region is gone or too
// small.
type Memory interface {
	Src(r plan.Run) (b []byte, ok bool)
	Dst(r plan.Run) (b []byte, ok bool)
}

// Gone is the cause with which a slice ends when Memory does not find one of its runs. side is "source" or
// "destination".
func Gone(side string, r plan.Run) transfer.Cause {
	return transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("%s region %#x of rank %d is gone", side, uint64(r.Region), r.Rank)}
}

// AtATime is how many runs of a slice are looked up and then moved, before the next ones are. Hardly any slice has more:
// one of blocks of 64 bytes has as many. One of blocks of a byte has a million; most of its time would go into memory
// for them, and a client that makes one would cost both ends of each link a hundred MiB.
const AtATime = 16 << 10

// Job is one slice to move (at the producer's end), or a whole segment to accept (at the consumer's end, where
// Key.Slice and Key.Attempt are unused).
type Job struct {
	Key  transfer.SliceKey
	Plan *plan.Plan
	Mem  Memory
}

// Sink receives events. Its methods never block for long and may be called from any goroutine. SliceSent and
// SliceLanded come once per slice attempt and end. Fenced comes once per Fence, after all slice reports of that leg.
type Sink interface {
	Event(ev transfer.Event)
}

// Batcher is a Sink that can take several events at once: Queue may hold an event back until Flush or Wake. Flush may
// process the queued events on the calling goroutine, which saves waking another one on a processor that is busy moving
// bytes; so call it without locks held. Wake leaves the events to another goroutine. Use it on threads of low priority,
// on which everybody would otherwise wait.
type Batcher interface {
	Sink
	Queue(ev transfer.Event)
	Flush()
	Wake()
}

// Batch returns s as a Batcher. If s is none, the result passes on each event at once.
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

// Reach says whether a transport can serve a pair of nodes, and if not, why.
type Reach struct {
	OK      bool
	Reason  string  // if not OK: what is missing and what to do
	In, Out float64 // recent rates from and to the peer, in 10^9 bytes a second; 0: unknown; equal within the node
}

// Transport moves slices. Post, Expect and Fence do not block. One goroutine at a time calls them: the one whose turn
// it is to run the driver.
type Transport interface {
	// Name is the name in the configuration's allow-list: "local", "tcp", ...
	Name() string
	// Probe says whether slices can move between this node and peer ("" is this node). Cheap; any goroutine may call
	// it.
	Probe(peer string) Reach
	// Post starts moving a slice whose source is on this node. It ends with SliceSent. When the destination is on this
	// node too, it also ends with SliceLanded for the consumer's leg, unless that leg does not expect the slice (any
	// more).
	Post(job Job)
	// Expect prepares for the slices of a segment. Each of them that arrives ends with SliceLanded. Slices that arrive
	// before Expect or after Fence, or that the plan does not have, are discarded and never touch memory.
	Expect(job Job)
	// Fence ends a leg: after the Fenced event no byte of it is read (Producer) or lands (Consumer). Posted slices that
	// have not started are reported as Cancelled. It needs no answer from the peer.
	Fence(leg transfer.Leg)
	// Ping returns nil when every worker has shown within ctx that it makes progress. A worker shows that by answering;
	// one that waits for peers, by being in such a wait or by having advanced since the last Ping. The error names one
	// that did not. For one goroutine.
	Ping(ctx context.Context) error
	// Close stops all workers. When it returns, everything is fenced.
	Close() error
}

// Direct is a Transport that can also move a small plan while the caller waits.
type Direct interface {
	Transport
	// MoveNow copies a whole plan whose two ends are on this node, and returns true when every byte is in place. False
	// means that the plan is too large to wait for, or that the copy failed, perhaps after some bytes. Called as Post
	// is.
	MoveNow(p *plan.Plan, mem Memory) bool
}

// Link is a data connection that belongs to an authenticated channel. It is full duplex. Its holder closes it.
type Link struct {
	Conn  net.Conn     // what to read and write (TLS or plain)
	TCP   *net.TCPConn // the bare connection, for vectored I/O, when Conn is not encrypted; else nil
	Peer  string       // node name
	Epoch uint64       // of the channel
	Index int          // stream number, 0 .. n-1
	Here  bool         // both ends are known to be on one machine, by more than their addresses
}

// Loopback says whether a is a loopback address. What is sent there can still reach another host, through a forwarder.
func Loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// LinkUser learns of the links of every channel. Transports that need connections implement it; package peer calls it.
type LinkUser interface {
	// ChannelUp says that the channel to peer works. Its links follow: package peer keeps dialing until there are as
	// many as wanted. What is posted before the first link waits.
	ChannelUp(peer string, epoch uint64)
	// LinkUp hands over a link. The user owns it until the user closes it or LinksDown says that the channel is over.
	LinkUp(l *Link)
	// LinksDown says that the channel of that epoch is over, or never came up. When it returns, no byte of the
	// channel's links is landing any more.
	LinksDown(peer string, epoch uint64)
}

// LinkSource reopens a lost link of a live channel. Package peer implements it.
type LinkSource interface {
	// Redial reports a lost link and asks for another in its place, unless that one has already come. The side that
	// dialed the channel dials the link, which arrives through LinkUp.
	Redial(ctx context.Context, lost *Link)
}
