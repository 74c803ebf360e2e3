package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Time is the daemon's monotonic clock in nanoseconds. Only differences mean anything; never sent to a peer.
type Time int64

// SessionID names a connected session within this daemon's incarnation. Never reused.
type SessionID uint64

// OpID names an accepted operation within this daemon's incarnation; the same in every session concerned.
type OpID uint64

// XferID names a transfer. The consumer's daemon draws it, unique within its incarnation; the producer's daemon knows it
// as (node, epoch, XferID).
type XferID uint64

// ReservedPrefix begins the keys that daemons use among themselves (to measure a transport). Clients cannot use them.
const ReservedPrefix = "\x00kvpipe/"

// End says which end of a transfer is meant. On one node both ends of a transfer live in one machine.
type End uint8

const (
	Producer End = 1
	Consumer End = 2
)

// Leg is one end of one transfer on this machine. Plans, posts and fences refer to it.
type Leg struct {
	Peer  string // the other end's node; "" when both ends are on this node
	Epoch uint64 // channel epoch in which the transfer was begun; 0 when Peer is ""
	Xfer  XferID
	End   End
}

// SliceKey names one attempt at a slice. Seg counts the segments of a transfer: an offer that grows is moved segment by
// segment, each with a plan of its own. Slice counts within the segment's plan.
type SliceKey struct {
	Leg
	Seg     uint32
	Slice   uint32
	Attempt uint32
}

// Reason numbers are the C header's enum kvpipe_reason.
type Reason uint16

const (
	OK Reason = iota
	Invalid
	NotFound
	Expired
	Denied
	Incompatible
	Busy
	Quota
	Timeout
	Cancelled
	PeerGone
	Restarted
	Unavailable
	Corrupt
	Closed
)

// Status numbers are the C header's enum kvpipe_status.
type Status uint16

const (
	Done         Status = 1
	Failed       Status = 2
	WasCancelled Status = 3
	Released     Status = 4
	Quarantined  Status = 5
)

// Role numbers are the C header's enum kvpipe_role.
type Role uint8

const (
	Worker    Role = 1
	Scheduler Role = 2
	Endpoint  Role = 3 // of a pipe or lookup buffer; ring.h's KVPIPE_ROLE_ENDPOINT
)

// NoRank is the rank of a scheduler's session.
const NoRank = ^uint32(0)

// Cause is why something did not go well: a reason and a text that names what was wrong and what to do.
type Cause struct {
	Reason Reason
	Text   string
}

// RankLayout is one rank of an engine on one node.
type RankLayout struct {
	Rank    uint32
	Session SessionID      // on this node; 0 when the rank is the peer's
	Layout  *layout.Layout // geometry and fingerprint
	known   *known         // of a peer's rank: where its layout is counted
}
