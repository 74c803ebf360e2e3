package transfer

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// Snapshot is what a machine knows, for people. It contains no tokens. Ages and leases are durations at the time it was
// taken. Lists are in ascending order of their first field; in Pipes, pipes come before lookup buffers.
type Snapshot struct {
	Engines   int // live instances
	Sessions  []SessionInfo
	Offers    []OfferInfo
	Transfers []TransferInfo
	Pipes     []PipeInfo
	Draining  bool
	Orphaned  int // sessions that are gone, but of whose memory something stays for takes or gets; they are listed too
	// Blocks under holds, counted per rank; shared ones once per hold.
	HoldsShared, HoldsExclusive int
	// Gets that have found no item yet, and the blocks under their holds. Transfers and HoldsExclusive contain them.
	Seeking, HoldsSeeking int
	Parked                int // takes that wait here for their offer, layouts, or the producer's progress
	Tombstones            int // remembered keys
}

// SessionInfo is a connected session.
type SessionInfo struct {
	Session    SessionID
	Operations int // submitted by it, not released
	Offers     int
	Reserved   int // completions reserved for operations that are not released
	Legs       int // transfers that may touch its memory
	Closing    bool
	Quotas     []QuotaInfo
}

// OfferStates are the states of live offers.
var OfferStates = []string{"joining", "open", "sealed", "orphaned"}

// OfferInfo is a live offer.
type OfferInfo struct {
	Key, Engine, Trace string
	State              string // one of OfferStates
	Tokens             uint32
	Blocks             int // ids of all segments, of one rank
	Sealed             bool
	Consumers          int
	Consumed           int
	Lease              Time // left
	Age                Time
}

// TransferEnded is the state of an end that is over, and remembered for a while.
const TransferEnded = "ended"

// TransferInfo is one end of a transfer. A transfer within this node shows both ends.
type TransferInfo struct {
	Xfer      XferID
	End       End
	State     string // as phase and serveState have it: "moving", TransferEnded, ...; "seeking" of all gets that Seeking counts
	Key       string
	Engine    string // of the other end, "" unknown
	Peer      string // "" this node
	Transport string // "" not chosen
	Trace     string
	Bytes     uint64 // of the segments known
	Moved     uint64 // about
	Deadline  Time   // left
	Age       Time   // consumer: since it was submitted
}

// Snapshot is SnapshotAt the time of the last Step.
func (m *Machine) Snapshot() *Snapshot { return m.SnapshotAt(m.now) }

// SnapshotAt copies what there is to see at that time, before which the last Step may be long: a machine that waits
// takes none. A smaller time counts as that of the last Step. It may be called between two Steps only.
func (m *Machine) SnapshotAt(now Time) *Snapshot {
	now = max(m.now, now)
	s := &Snapshot{Draining: m.draining, Pipes: m.pipes(), Tombstones: len(m.graves.keys)}
	for _, l := range m.engines {
		if l.live != nil {
			s.Engines++
		}
	}
	for _, x := range m.sessions {
		s.Sessions = append(s.Sessions, x.info(m))
		if x.orphaned {
			s.Orphaned++
		}
		if x.holds != nil {
			shared, exclusive := x.holds.Held()
			s.HoldsShared += shared
			s.HoldsExclusive += exclusive
		}
	}
	for _, o := range m.offers {
		if o.item == nil {
			s.Offers = append(s.Offers, o.info(now))
		}
	}
	for _, t := range m.takes {
		s.Transfers = append(s.Transfers, t.info(now))
		if t.seeks() {
			s.Seeking++
			s.HoldsSeeking += blocksIn(t.get.in.Blocks)
		}
	}
	for _, v := range m.serves {
		s.Transfers = append(s.Transfers, v.info(now))
		if v.waits() {
			s.Parked++
		}
	}
	slices.SortFunc(s.Sessions, func(a, b SessionInfo) int { return cmp.Compare(a.Session, b.Session) })
	slices.SortFunc(s.Offers, func(a, b OfferInfo) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(s.Transfers, func(a, b TransferInfo) int {
		return cmp.Or(cmp.Compare(a.Xfer, b.Xfer), cmp.Compare(a.End, b.End), cmp.Compare(a.Peer, b.Peer))
	})
	return s
}

func (s *session) info(m *Machine) SessionInfo {
	return SessionInfo{
		Session: s.id, Operations: len(s.ops), Offers: s.used[quotaOffers], Reserved: s.reserved, Legs: s.legs,
		Closing: s.closed || s.ended != nil, Quotas: m.quotasOf(s),
	}
}

func (o *offer) info(now Time) OfferInfo {
	i := OfferInfo{
		Key: o.key, Engine: o.engine.key.name, Trace: o.trace, State: "open",
		Sealed: o.sealed(), Consumers: o.consumers, Lease: max(o.expires-now, 0), Age: now - o.members[0].began,
	}
	switch {
	case o.orphaned:
		i.State = "orphaned"
	case !o.joined:
		i.State = "joining"
	case i.Sealed:
		i.State = "sealed"
	}
	if n := o.segments(); n > 0 {
		i.Tokens = o.tokens(n - 1)
	}
	for _, p := range o.members[0].segs {
		for _, b := range p.blocks {
			i.Blocks += len(b.IDs)
		}
	}
	for _, c := range o.claims {
		if c.complete() {
			i.Consumed++
		}
	}
	return i
}

// seeks says whether t is a get that has found no item yet, be it that its home is not connected.
func (t *take) seeks() bool {
	return t.get != nil && (t.phase == phaseReaching || t.phase == phaseSeeking)
}

func (t *take) info(now Time) TransferInfo {
	i := TransferInfo{
		Xfer: t.leg.id.Xfer, End: Consumer, Key: string(t.in.Key), Engine: t.engine, Peer: t.leg.id.Peer, Trace: t.in.Trace,
		State: t.phase.String(), Deadline: max(t.until-now, 0), Age: now - t.began,
	}
	if t.seeks() {
		i.State = phaseSeeking.String()
	}
	if i.Peer == "" && t.in.Peer != "" {
		i.Peer = t.in.Peer
	}
	for _, seg := range t.segs {
		if seg != nil {
			if i.Transport = t.transport; seg.grant != nil {
				i.Transport = seg.grant.Transport
			}
			i.Bytes += seg.bytes
			i.Moved += seg.bytes / max(uint64(seg.slices), 1) * uint64(seg.count)
		}
	}
	return i
}

func (v *serve) info(now Time) TransferInfo {
	i := TransferInfo{
		Xfer: v.leg.id.Xfer, End: Producer, Key: string(v.take.Key), Engine: v.take.Engine, Peer: v.leg.id.Peer, Trace: v.take.Trace,
		State: v.state.String(), Deadline: max(v.deadline.at-now, 0), Age: now - v.began,
	}
	if v.waits() {
		i.State = serveParked.String()
	}
	for _, seg := range v.segs {
		i.Transport = seg.transport
		i.Bytes += seg.bytes
		i.Moved += seg.each() * uint64(seg.ended)
	}
	return i
}

// blocksIn counts the blocks of lists. Positions without a block hold nothing.
func blocksIn(lists []layout.BlockList) (n int) {
	for _, b := range lists {
		n += len(b.IDs)
		if layout.IsAdjacent(b.IDs) {
			continue // none is missing, so there is no need to look
		}
		for _, id := range b.IDs {
			if id == layout.NoBlock {
				n--
			}
		}
	}
	return n
}
