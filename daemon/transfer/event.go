package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Event is what happened. The machine takes ownership of what an event points to; nothing may change it afterwards.
type Event interface{ event() }

// --- sessions -------------------------------------------------------------------------------------------------

// SessionOpened: an authenticated session exists. Owner is opaque (uid and cgroup). Credits is how many completions the session can still
// be sent; the machine reserves them before it accepts an operation, and gets them back by CreditsReturned. Had are the ranks that the
// instance had here by what is known of it from before a restart; those that are not here are missing. Resumed: it has proved that it is
// the session of before. Changed, of a scheduler's: since it began to submit, a rank came that had not been in what it asked for. Sessions are
// told of in the order in which they were admitted: of those that come after it the machine judges by itself.
type SessionOpened struct {
	Session  SessionID
	Engine   string
	Instance string
	Owner    string
	Role     Role
	Rank     uint32 // tp + pp*TPWorld; NoRank for schedulers
	TPWorld  uint32
	PPWorld  uint32
	Credits  int
	Had      []uint32
	Resumed  bool
	Changed  bool
}

// LayoutSet: the session's layout was validated. Once per session.
type LayoutSet struct {
	Session SessionID
	Layout  *layout.Layout
}

// SessionClosed: the client closed, died or was ended. The machine fences all that touches the session's memory, then
// says SessionDrained. No completion is sent to it after this.
//
// Died: its process is gone, so that nothing writes its memory any more, and Progress is the last that it said. Sealed offers whose
// blocks it had finished are kept for a while then (Config.OrphanLease): SessionOrphaned says what of its memory has to stay.
type SessionClosed struct {
	Session  SessionID
	Cause    Cause
	Died     bool
	Progress uint64
}

// RegionRemoved: the client wants a region back. Operations on layouts that name it are ended; RegionDrained follows.
type RegionRemoved struct {
	Session SessionID
	Region  layout.RegionID
}

// RegionInvalidated: the client gives up what is in a region, and keeps its name and the layout. Operations end as when it is removed,
// RegionDrained follows, and new ones are refused until RegionRevalidated. Told again it is answered again.
type RegionInvalidated struct {
	Session SessionID
	Region  layout.RegionID
}

// RegionRevalidated: the region has memory again.
type RegionRevalidated struct {
	Session SessionID
	Region  layout.RegionID
}

// CreditsReturned: the client consumed n completions.
type CreditsReturned struct {
	Session SessionID
	N       int
}

// Progress: the rank's progress word was seen at Value (design: step<<16 | phase).
type Progress struct {
	Session SessionID
	Value   uint64
}

// --- operations -----------------------------------------------------------------------------------------------

// Submit: a validated submission (lengths, limits and flags are right; meaning is the machine's).
type Submit struct {
	Session  SessionID
	UserData uint64
	Tag      uint64
	Op       Op
}

// Op is one of the operations below.
type Op interface{ op() }

// OfferOp offers blocks under a key. Sched sessions offer for all ranks of their engine on this node, workers for their own.
type OfferOp struct {
	Key, Token, Content []byte
	Trace               string
	Lease               Time // duration; 0: default
	Consumers           int
	After               uint64
	Sealed, Layered     bool
	Again               bool // it was submitted before this session
	Blocks              []layout.BlockList
}

// ExtendOp adds blocks to an unsealed offer of the same session.
type ExtendOp struct {
	Target          uint64 // UserData of the offer
	After           uint64
	Sealed, Layered bool
	Blocks          []layout.BlockList
}

type SealOp struct{ Target uint64 }
type WithdrawOp struct{ Target uint64 }

// CancelOp ends any operation of the session.
type CancelOp struct{ Target uint64 }

// TakeOp asks for a key at a peer ("" is this node) into own blocks.
type TakeOp struct {
	Key, Token, Content []byte
	Trace, Peer         string
	TakeID              uint64
	Part, Parts         int
	After               uint64
	Layered             bool
	LayerSlot           uint32 // where to say how far it is, and that bytes were granted; NoSlot: nowhere
	Again               bool   // it was submitted before this session
	Restarted           bool   // bytes were granted by an earlier daemon: it is only reported as failed
	Timeout             Time   // duration
	Blocks              []layout.BlockList
}

// NoSlot is a take without a layer slot.
const NoSlot = ^uint32(0)

// WatchOp and DropOp: see kvpipe.h.
type WatchOp struct {
	Key, Token  []byte
	Trace, Peer string
	Timeout     Time
}
type DropOp struct {
	Key, Token  []byte
	Trace, Peer string
	Timeout     Time
}

// --- peers ----------------------------------------------------------------------------------------------------

// PeerUp: the channel to a node is open. Hints lists the strings by which Dial effects had asked for it. Repeated with the
// same epoch when a further Dial asks for a node whose channel is open already.
type PeerUp struct {
	Node        string
	Epoch       uint64
	Incarnation uint64 // of the peer's daemon: another one knows nothing of what was before
	Hints       []string
}

// PeerDown: the channel of that epoch is gone; its links are closed. Fences of its legs still have to be asked for.
type PeerDown struct {
	Node  string
	Epoch uint64
	Cause Cause
}

// LinkLost: a data link of that channel was lost while the channel lives. Slices that were sent over it may never land and are
// reported by nobody: those of that peer that have not landed have to be asked for again, with a higher attempt. The
// link is fenced: nothing more lands through it.
type LinkLost struct {
	Node  string
	Epoch uint64
}

// DialFailed: the peer asked for by Hint cannot be reached now or at all (not allowed, unknown). Final says which.
type DialFailed struct {
	Hint  string
	Final bool
	Cause Cause
}

// PeerMsg: a message of that channel.
type PeerMsg struct {
	Node  string
	Epoch uint64
	Msg   Msg
}

// --- plans and slices -----------------------------------------------------------------------------------------

// Planned answers a Plan effect. Cause.Reason != OK: no plan (incompatible, no transport, overlap, ...).
type Planned struct {
	Leg       Leg
	Seg       uint32
	Size      uint32 // bytes that the plan keeps besides what MakePlan named, and those of a small one
	Transport string // chosen by the producer's side; the consumer's plan ignores it
	Inline    bool   // small enough to ride inside MsgGrant (never when both ends are here)
	Slices    uint32
	Bytes     uint64
	RankBytes map[uint32]uint64 // consumer rank -> bytes; may be nil when there is one rank
	Marks     []Mark            // layered plans only
	Missing   []layout.Run      // destination blocks that the producer has no block for; ascending groups and ids
	Cause     Cause
}

// Mark says that slices from First on (until the next mark) read layer ordinal SrcLayer of producer rank SrcRank and
// write layer ordinal DstLayer of the consumer. Ordinals count the layers of a rank's layout, or of all of the take's ranks, ascending.
type Mark struct {
	First    uint32
	SrcRank  uint32
	SrcLayer uint32
	DstLayer uint32
}

// SliceSent: the producer's end of a posted slice ended: source memory is no longer read for this attempt.
type SliceSent struct {
	Key   SliceKey
	Cause Cause // OK, or why it was not (link down: PeerGone; source fault: Corrupt)
}

// SliceLanded: the consumer's end of a slice ended. OK: all its bytes are in place and checked.
type SliceLanded struct {
	Key   SliceKey
	Cause Cause // Corrupt: checksum or destination fault; PeerGone: link went down half-way
}

// InlineRead answers ReadInline, InlineWritten answers WriteInline.
type InlineRead struct {
	Leg   Leg
	Seg   uint32
	Data  []byte
	CRC   uint32 // CRC32C of Data
	Cause Cause
}
type InlineWritten struct {
	Leg   Leg
	Seg   uint32
	Cause Cause
}

// Fenced answers Fence: no byte of that leg is read (Producer) or lands (Consumer) any more. Cause.Reason != OK: it could not be
// fenced; the memory is quarantined, and a later Fenced with OK ends that.
type Fenced struct {
	Leg   Leg
	Cause Cause
}

// Tick: the armed timer fired.
type Tick struct{}

// Drain: no new operations; running ones may end until their deadlines or until the daemon closes the sessions. Stop: the daemon is
// about to end. Its clients come back to the next one with all that has not begun, so nothing new is refused, or answered at all.
type Drain struct{ Stop bool }

func (SessionOpened) event()     {}
func (LayoutSet) event()         {}
func (SessionClosed) event()     {}
func (RegionRemoved) event()     {}
func (RegionInvalidated) event() {}
func (RegionRevalidated) event() {}
func (CreditsReturned) event()   {}
func (Progress) event()          {}
func (Submit) event()            {}
func (PeerUp) event()            {}
func (PeerDown) event()          {}
func (LinkLost) event()          {}
func (DialFailed) event()        {}
func (PeerMsg) event()           {}
func (Planned) event()           {}
func (SliceSent) event()         {}
func (SliceLanded) event()       {}
func (InlineRead) event()        {}
func (InlineWritten) event()     {}
func (Fenced) event()            {}
func (Tick) event()              {}
func (Drain) event()             {}

func (*OfferOp) op()    {}
func (*ExtendOp) op()   {}
func (*SealOp) op()     {}
func (*WithdrawOp) op() {}
func (*CancelOp) op()   {}
func (*TakeOp) op()     {}
func (*WatchOp) op()    {}
func (*DropOp) op()     {}
