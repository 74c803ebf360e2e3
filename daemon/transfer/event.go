package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Event is what happened. The machine owns what an event points to; nothing may change it afterwards.
type Event interface{ event() }

// --- sessions -------------------------------------------------------------------------------------------------

// SessionOpened says that an authenticated session exists. Sessions are announced in the order in which they were admitted.
type SessionOpened struct {
	Session  SessionID
	Engine   string
	Instance string
	Owner    string // opaque: uid and cgroup
	User     uint32 // uid
	Role     Role
	Rank     uint32 // tp + pp*TPWorld; NoRank for schedulers
	TPWorld  uint32
	PPWorld  uint32
	Credits  int      // completions that it can still be sent; the machine reserves them for operations, CreditsReturned gives them back
	Had      []uint32 // ranks that the instance had here before a restart, as far as is known; those that are not here are missing
	Resumed  bool     // it has proved that it is the session of before
	Changed  bool     // a scheduler's: since it began to submit, a rank came that its operations did not include; later ones the machine sees itself
}

// LayoutSet says that the session's layout was validated. It comes once per session.
type LayoutSet struct {
	Session SessionID
	Layout  *layout.Layout
}

// SessionClosed says that the client closed, died or was ended. The machine fences all that touches the session's
// memory, then says SessionDrained. No completion is sent to the session after this.
//
// Died: its process is gone, so nothing writes its memory any more, and Progress is the last value that it reported.
// Then sealed offers whose blocks it had finished are kept for a while (Config.OrphanLease); SessionOrphaned says what
// of its memory has to stay.
type SessionClosed struct {
	Session  SessionID
	Cause    Cause
	Died     bool
	Progress uint64
}

// RegionRemoved says that the client wants a region back. Operations on layouts that name it are ended; RegionDrained follows.
type RegionRemoved struct {
	Session SessionID
	Region  layout.RegionID
}

// RegionInvalidated says that the client gives up what is in a region, and keeps its name and the layout. Operations
// end as when it is removed, RegionDrained follows, and new ones are refused until RegionRevalidated. If it is
// repeated, it is answered again.
type RegionInvalidated struct {
	Session SessionID
	Region  layout.RegionID
}

// RegionRevalidated says that the region has memory again.
type RegionRevalidated struct {
	Session SessionID
	Region  layout.RegionID
}

// CreditsReturned says that the client consumed N completions.
type CreditsReturned struct {
	Session SessionID
	N       int
}

// Progress says that the rank's progress word was seen at Value (step<<16 | phase, as in kvpipe.h).
type Progress struct {
	Session SessionID
	Value   uint64
}

// --- operations -----------------------------------------------------------------------------------------------

// Submit is a validated submission: lengths, limits and flags are right. What it means is for the machine to judge.
type Submit struct {
	Session  SessionID
	UserData uint64
	Tag      uint64
	Op       Op
}

// Op is one of the operations below.
type Op interface{ op() }

// OfferOp offers blocks under a key. A scheduler offers for all ranks of its engine on this node, a worker for its own.
type OfferOp struct {
	Key, Token, Content []byte
	Trace               string
	Lease               Time // duration; 0: default
	Consumers           int
	After               uint64
	Sealed, Layered     bool
	Again               bool // submitted before this session began, or as OfBefore says
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

// TakeOp asks a peer ("": this node) for what lies under a key, to be moved into blocks of this node.
type TakeOp struct {
	Key, Token, Content []byte
	Trace, Peer         string
	TakeID              uint64
	Part, Parts         int
	After               uint64
	Layered             bool
	LayerSlot           uint32 // where to report the grant and the layers in place; NoSlot: nowhere
	Again               bool   // as in OfferOp
	Restarted           bool   // bytes were granted by an earlier daemon: it is only reported as failed
	Timeout             Time   // duration
	Blocks              []layout.BlockList
}

// NoSlot is the LayerSlot of a take without one.
const NoSlot = ^uint32(0)

// WatchOp and DropOp are described in kvpipe.h.
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

// PeerUp says that the channel to a node is open. Hints lists the strings by which Dial effects asked for it. It is
// repeated with the same epoch when a further Dial asks for a node whose channel is open already.
type PeerUp struct {
	Node        string
	Epoch       uint64
	Incarnation uint64 // of the peer's daemon: another one knows nothing of what was before
	Hints       []string
}

// PeerDown says that the channel of that epoch is gone, and its links are closed. Fences of its legs still have to be asked for.
type PeerDown struct {
	Node  string
	Epoch uint64
	Cause Cause
}

// LinkLost says that a data link of that channel was lost while the channel lives. The link is fenced: nothing more
// lands through it. Slices that were sent over it may never land, and nobody reports them. So slices of that peer that
// have not landed have to be asked for again, with a higher attempt.
type LinkLost struct {
	Node  string
	Epoch uint64
}

// DialFailed says that the peer asked for by Hint cannot be reached now or, if Final, at all (not allowed, unknown).
type DialFailed struct {
	Hint  string
	Final bool
	Cause Cause
}

// PeerMsg is a message of that channel.
type PeerMsg struct {
	Node  string
	Epoch uint64
	Msg   Msg
}

// --- plans and slices -----------------------------------------------------------------------------------------

// Planned answers MakePlan. Cause.Reason != OK: there is no plan (incompatible, no transport, overlap, ...).
type Planned struct {
	Leg       Leg
	Seg       uint32
	Size      uint32 // bytes that the plan keeps beyond its request and beyond those of the smallest plan
	Transport string // chosen by the producer's side; ignored in the consumer's plan
	Inline    bool   // small enough to ride inside MsgGrant (never when both ends are here)
	Slices    uint32
	Bytes     uint64
	Pieces    uint64            // about how many pieces of memory those are; used in the producer's plan alone
	RankBytes map[uint32]uint64 // consumer rank -> bytes; may be nil when there is one rank
	Marks     []Mark            // layered plans only
	Missing   []layout.Run      // destination blocks that the producer has no block for; ascending groups and ids
	Cause     Cause
}

// Mark says that slices from First on (until the next mark) read layer ordinal SrcLayer of producer rank SrcRank and
// write layer ordinal DstLayer of the consumer. Ordinals count layers in ascending order: SrcLayer those of the rank's
// layout, DstLayer those of all of the take's ranks.
type Mark struct {
	First    uint32
	SrcRank  uint32
	SrcLayer uint32
	DstLayer uint32
}

// SliceSent says that the producer's end of a posted slice ended: source memory is no longer read for this attempt.
type SliceSent struct {
	Key   SliceKey
	Cause Cause // OK, or why it was not (link down: PeerGone; source fault: Corrupt)
}

// SliceLanded says that the consumer's end of a slice ended. OK: all its bytes are in place and checked.
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

// Fenced answers Fence: no byte of that leg is read (Producer) or lands (Consumer) any more. Cause.Reason != OK: it
// could not be fenced. Then the memory is in quarantine until a later Fenced with OK.
type Fenced struct {
	Leg   Leg
	Cause Cause
}

// Tick says that the armed timer fired.
type Tick struct{}

// Drain lets no new operations begin. Running ones may go on until their deadlines, or until the daemon closes the
// sessions. Stop: the daemon is about to end. Its clients bring to the next one all that has not begun, so this one
// does not answer that; only a PUT is refused.
type Drain struct{ Stop bool }

// Ending says that a daemon that has drained ends now: its channels and sessions are about to be closed. What fails from
// here on is not reported. Nearly all of it fails because of that, and the clients' libraries know what it means.
type Ending struct{}

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
func (Ending) event()            {}

func (*OfferOp) op()    {}
func (*ExtendOp) op()   {}
func (*SealOp) op()     {}
func (*WithdrawOp) op() {}
func (*CancelOp) op()   {}
func (*TakeOp) op()     {}
func (*WatchOp) op()    {}
func (*DropOp) op()     {}
