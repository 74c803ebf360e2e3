package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Effect is what the driver has to do, in the order given. Each effect that is answered by an event is answered once,
// except a Fence that fails at first (see Fenced).
type Effect interface{ effect() }

// Complete puts one completion into the session's ring. For a take that was moved at once the effect is a *Complete,
// valid until the next step.
type Complete struct {
	Session  SessionID
	UserData uint64 // 0 when another session submitted it
	Tag      uint64
	Kind     Kind
	Age      Time // since it was accepted; 0 for what is answered at once
	Op       OpID
	Bytes    uint64
	Status   Status
	Reason   Reason
	More     bool // RELEASED follows
	Failed   []layout.Run
	Text     string
	Got      *Got // of a GET that is done
	Short    bool // a GET moved nothing, for lack of room
	Last     bool // it took the session's last credit: somebody may be waiting for the credits that collecting gives back
}

// Rouse says that all that the session's operation has to wait for is here, so it completes as soon as its bytes are in
// place. A client that sleeps for this operation alone may be woken now: waking takes as long as the rest.
type Rouse struct {
	Session  SessionID
	UserData uint64
}

// Granted says in the session's layer slot that bytes of the take may be written from now on. It comes before any
// effect that lets them be written.
type Granted struct {
	Session  SessionID
	Slot     uint32
	UserData uint64
}

// LayerReady publishes in the session's layer slot how many of the take's layers are in place. For a worker, only
// layers of the groups that its take names count.
type LayerReady struct {
	Session  SessionID
	Slot     uint32
	UserData uint64
	Ready    uint32
}

// WatchProgress asks for a Progress event once the session's progress has reached Value. 0: no longer needed.
type WatchProgress struct {
	Session SessionID
	Value   uint64
}

// EndSession tells the client why, and ends its session; SessionClosed follows. The session's operations end in the same step.
type EndSession struct {
	Session SessionID
	Cause   Cause
}

// SessionOrphaned says that of a closed session's memory only the blocks in Keep may still be touched, by those who
// take them. Keep has an element for each segment of an offer, and for each item, that outlives the session. All other
// memory may go; SessionDrained follows.
type SessionOrphaned struct {
	Session SessionID
	Layout  *layout.Layout
	Keep    [][]layout.BlockList
}

// Brought says that a scheduler which came back has nothing more of before: it has submitted something new, and all that it
// had brought along is begun or refused.
type Brought struct{ Session SessionID }

// SessionDrained and RegionDrained say that nothing touches that memory any more.
type SessionDrained struct{ Session SessionID }
type RegionDrained struct {
	Session SessionID
	Region  layout.RegionID
}

// Dial asks for a channel to the peer that a client named (node name, or host:port hint). Answered by PeerUp (Hints) or DialFailed.
type Dial struct{ Hint string }

// Send puts a message on the node's channel of that epoch; it is dropped when the epoch is over. More: others of its
// kind are about to follow, and it may wait a moment for them.
type Send struct {
	Node  string
	Epoch uint64
	Msg   Msg
	More  bool
}

// MakePlan asks for the plan of a leg's segment. The driver keeps the plan under (Leg, Seg) until Forget. When both
// ends are here, only the producer's leg is planned, and its plan serves the consumer's leg too.
type MakePlan struct {
	Leg      Leg
	Seg      uint32
	Producer []RankLayout
	Consumer []RankLayout
	Src, Dst []layout.BlockList
	// SrcBy overrides Src for single ranks, in offers that workers made themselves.
	SrcBy   map[uint32][]layout.BlockList
	User    uint32 // who takes, if that is a session of this node
	Layered bool
	Whole   bool // every destination element must have a source, else Incompatible (the producer's engine lives on one node)
}

// Expect asks to accept slices of that leg (Consumer), over the transport that the producer named, until Fence.
type Expect struct {
	Leg       Leg
	Seg       uint32
	Transport string
}

// Post moves slices. The machine bounds how many are posted at a time. When both ends are here, one Post yields
// SliceSent and SliceLanded. Keys is valid until the next step.
type Post struct {
	Keys      []SliceKey
	Transport string
}

// ReadInline gathers a whole small segment, WriteInline scatters it. What was gathered is sent, perhaps again, until
// Forget; what is scattered is the driver's from then on.
type ReadInline struct {
	Leg Leg
	Seg uint32
}
type WriteInline struct {
	Leg  Leg
	Seg  uint32
	Data []byte
	CRC  uint32
}

// Fence stops everything of that leg. Fenced answers it once no byte is read or lands any more; before that, slices in
// flight are still reported.
type Fence struct{ Leg Leg }

// Forget drops the leg's plans. It comes after the leg's Fenced.
type Forget struct{ Leg Leg }

// ArmTimer asks for a Tick at that time. It replaces the timer before it; 0 disarms.
type ArmTimer struct{ At Time }

// Log is something that an operator may want to see. Levels are those of log/slog (-4 debug, 0 info, 4 warn). Never tokens.
type Log struct {
	Level int
	Text  string
	Attrs []any // key, value, ...
	Often bool  // a client can have it said as often as it likes; so can it what is normal (info)
}

func (Rouse) effect()           {}
func (Granted) effect()         {}
func (Complete) effect()        {}
func (LayerReady) effect()      {}
func (WatchProgress) effect()   {}
func (EndSession) effect()      {}
func (SessionOrphaned) effect() {}
func (Brought) effect()         {}
func (SessionDrained) effect()  {}
func (RegionDrained) effect()   {}
func (Dial) effect()            {}
func (Send) effect()            {}
func (MakePlan) effect()        {}
func (Expect) effect()          {}
func (Post) effect()            {}
func (ReadInline) effect()      {}
func (WriteInline) effect()     {}
func (Fence) effect()           {}
func (Forget) effect()          {}
func (ArmTimer) effect()        {}
func (Log) effect()             {}
