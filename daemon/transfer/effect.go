package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Effect is what the driver has to do, in the order given. Every effect that is answered by an event is answered once.
type Effect interface{ effect() }

// Complete: put one completion into the session's ring. Where a take was moved at once it is a *Complete, valid until the next step.
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
	Got      *Got // a GET's, when done
	Short    bool // it moved nothing: there was no room
	Last     bool // of the session's credits: somebody may be waiting for those that it gives back
}

// Rouse: all that the session's operation has to wait for is here, and it completes as soon as its bytes are in place. A client that
// sleeps for it alone may be woken now: it takes as long to wake as the rest takes.
type Rouse struct {
	Session  SessionID
	UserData uint64
}

// Granted: say in the session's layer slot that bytes of the take may be written from now on, before anything that comes after it.
type Granted struct {
	Session  SessionID
	Slot     uint32
	UserData uint64
}

// LayerReady: publish in the session's layer slot how many of the take's layers are in place: a worker's are those of the groups that it names.
type LayerReady struct {
	Session  SessionID
	Slot     uint32
	UserData uint64
	Ready    uint32
}

// WatchProgress: report the session's progress once it has reached Value (Progress event). 0: no longer needed.
type WatchProgress struct {
	Session SessionID
	Value   uint64
}

// EndSession: tell the client why and end its session; SessionClosed follows. Its operations were ended already.
type EndSession struct {
	Session SessionID
	Cause   Cause
}

// SessionOrphaned: nothing touches the memory of a closed session any more but those who take the blocks in Keep, one element for
// each offer or item that outlives it. All other memory may go; SessionDrained follows.
type SessionOrphaned struct {
	Session SessionID
	Layout  *layout.Layout
	Keep    [][]layout.BlockList
}

// SessionDrained, RegionDrained: nothing touches that memory any more.
type SessionDrained struct{ Session SessionID }
type RegionDrained struct {
	Session SessionID
	Region  layout.RegionID
}

// Dial: have a channel to the peer that a client named (node name, or host:port hint). Answered by PeerUp (Hints) or DialFailed.
type Dial struct{ Hint string }

// Send: put a message on the node's channel of that epoch; dropped when the epoch is over. More: others of its kind are about to follow,
// and it may wait for them a moment.
type Send struct {
	Node  string
	Epoch uint64
	Msg   Msg
	More  bool
}

// MakePlan: plan a segment of a leg. The driver keeps the plan under (Leg, Seg) until Forget. When both ends are here only the
// producer's leg is planned, and its plan serves the consumer's leg too.
type MakePlan struct {
	Leg      Leg
	Seg      uint32
	Producer []RankLayout
	Consumer []RankLayout
	Src, Dst []layout.BlockList
	// SrcBy overrides Src for single ranks (offers that workers made themselves).
	SrcBy   map[uint32][]layout.BlockList
	Layered bool
	Whole   bool // every destination element must have a source (the producer's engine lives on one node), else Incompatible
}

// Expect: accept slices of that leg (Consumer) over the transport the producer named, until Fence.
type Expect struct {
	Leg       Leg
	Seg       uint32
	Transport string
}

// Post: move slices. The machine bounds how many are posted at a time. When both ends are here one Post yields SliceSent and SliceLanded.
type Post struct {
	Keys      []SliceKey
	Transport string
}

// ReadInline, WriteInline: gather or scatter a whole small segment.
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

// Fence: stop everything of that leg; answered by Fenced once no byte is read or lands. Slices in flight are still reported, before it.
type Fence struct{ Leg Leg }

// Forget: drop the leg's plans. Comes after its Fenced.
type Forget struct{ Leg Leg }

// ArmTimer: send Tick at that time. Replaces the timer before it; 0 disarms.
type ArmTimer struct{ At Time }

// Log: something an operator may want to see. Level as in log/slog (-4 debug, 0 info, 4 warn). Never tokens.
type Log struct {
	Level int
	Text  string
	Attrs []any // key, value, ...
}

func (Rouse) effect()           {}
func (Granted) effect()         {}
func (Complete) effect()        {}
func (LayerReady) effect()      {}
func (WatchProgress) effect()   {}
func (EndSession) effect()      {}
func (SessionOrphaned) effect() {}
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
