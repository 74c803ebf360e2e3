package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Msg is a message between two machines. Loss, duplication, reordering and delay of messages may cost time, never a
// promise. Their form on the wire is peer.proto.
type Msg interface{ msg() }

// RankRef names a rank's layout by its digest; the layout itself travels once per channel, in MsgLayout.
type RankRef struct {
	Rank   uint32
	Digest [32]byte
}

// MsgLayout carries a layout. On the wire it is encoded, with its digest; what is no layout there, or another, comes to no machine.
type MsgLayout struct{ Layout *layout.Layout }

// MsgTake: consumer to producer, repeated until answered: it also renews the offer's lease.
type MsgTake struct {
	Xfer                XferID
	Engine, Instance    string
	TakeID              uint64
	Part, Parts         int
	Key, Token, Content []byte
	Trace               string
	Layered             bool
	Ranks               []RankRef
	Blocks              []layout.BlockList
	Deadline            Time // duration left
}

// MsgNeedLayout: the receiver of MsgTake or MsgGrant does not know these layouts (yet): send them, then repeat.
type MsgNeedLayout struct {
	Xfer    XferID
	End     End // the end that asks
	Digests [][32]byte
}

// MsgParked: the take is known here and waits (for the offer, for progress, for an engine that is re-attaching).
type MsgParked struct{ Xfer XferID }

// MsgRefuse: the take ends here.
type MsgRefuse struct {
	Xfer  XferID
	Cause Cause
	Retry Time // nonzero: ask again after this long
}

// MsgGrant: the producer's answer: what will be moved. A later segment (Seg > 0) is announced with the same message.
type MsgGrant struct {
	Xfer        XferID
	Seg         uint32
	Incarnation uint64 // of the offer
	Engine      string
	Whole       bool // consumer elements must all be covered
	Ranks       []RankRef
	Blocks      []layout.BlockList
	BlocksBy    map[uint32][]layout.BlockList
	Tokens      uint32 // the offer covers tokens below this, so far
	Last        bool   // no further segment follows
	Layered     bool
	Transport   string
	Slices      uint32
	Bytes       uint64
	Inline      []byte // the whole segment, when small
	InlineCRC   uint32
	HasInline   bool
}

// MsgGo: the consumer has made ready for the segment's bytes.
type MsgGo struct {
	Xfer XferID
	Seg  uint32
}

// MsgSent: the producer has read and sent every slice of every segment, under one hold of that incarnation.
type MsgSent struct {
	Xfer        XferID
	Incarnation uint64
	Segs        uint32
}

// MsgResend: these slices did not land whole; their old links are fenced at the consumer.
type MsgResend struct {
	Xfer    XferID
	Seg     uint32
	Attempt uint32
	Slices  []uint32
}

// MsgEnd: consumer to producer: the take's terminal state, repeated until MsgEndAck. Done is the commit record: it counts for
// the offer of that incarnation alone.
type MsgEnd struct {
	Xfer        XferID
	Incarnation uint64 // of the offer, as it was granted; 0: nothing was
	Status      Status
	Cause       Cause
}
type MsgEndAck struct{ Xfer XferID }

// MsgAbort: producer to consumer: the producer's end is over and its reads are fenced (withdrawn, expired, died, faulted).
type MsgAbort struct {
	Xfer  XferID
	Cause Cause
}

// MsgKey: watch or drop a key; ID is drawn by the sender. MsgKeyAck answers.
type MsgKey struct {
	ID         uint64
	Drop       bool
	Engine     string
	Key, Token []byte
	Trace      string
	For        Time // watch: how long the interest lasts
}
type MsgKeyAck struct {
	ID    uint64
	Cause Cause
}

// MsgSeek: a GET at another node's pipe or lookup buffer; repeated until answered. MsgEnd ends it, too.
type MsgSeek struct {
	Xfer     XferID // also of the take that will follow
	Bind     uint64 // the receiving end, drawn by its node
	Home     uint64 // that the end has met; 0: none yet, and Seq counts from the first item that it will get
	Base     uint64 // number there of the end's item 0
	Buffer   bool
	Name     string
	Token    []byte
	Match    Match
	Seq      uint64
	Key      []byte
	Tokens   []uint32
	Room     uint64
	Keep     Time // how long an item is reserved that there is no room for
	Deadline Time // duration left

	// Take is what MsgTake would say of an item that fills Room, without Xfer, Key, Token and Deadline. A home of before does not know it.
	Take *MsgTake
}

// MsgFound: an item is reserved for that GET, which takes it by Key and Token; without them there is no room for it (or a
// reservation was given back, as asked for). Taken: the home has begun the take that came with MsgSeek, as if MsgTake had come.
type MsgFound struct {
	Xfer                           XferID
	Home, Base                     uint64
	Item, Bytes, Capacity, Matched uint64
	Meta, Key, Token               []byte
	Taken                          bool
}

// MsgSeekParked: the GET is known and waits.
type MsgSeekParked struct {
	Xfer       XferID
	Home, Base uint64 // 0: there is no home yet
	Why        uint8
}

// MsgSeekRefuse: the GET ends here.
type MsgSeekRefuse struct {
	Xfer  XferID
	Cause Cause
	Retry Time // nonzero: ask again after this long
}

// MsgUnbind: a receiving end is closed; repeated until MsgUnbindAck.
type MsgUnbind struct {
	Bind   uint64
	Buffer bool
	Name   string
}
type MsgUnbindAck struct{ Bind uint64 }

func (*MsgSeek) msg()       {}
func (*MsgFound) msg()      {}
func (*MsgSeekParked) msg() {}
func (*MsgSeekRefuse) msg() {}
func (*MsgUnbind) msg()     {}
func (*MsgUnbindAck) msg()  {}
func (*MsgLayout) msg()     {}
func (*MsgTake) msg()       {}
func (*MsgNeedLayout) msg() {}
func (*MsgParked) msg()     {}
func (*MsgRefuse) msg()     {}
func (*MsgGrant) msg()      {}
func (*MsgGo) msg()         {}
func (*MsgSent) msg()       {}
func (*MsgResend) msg()     {}
func (*MsgEnd) msg()        {}
func (*MsgEndAck) msg()     {}
func (*MsgAbort) msg()      {}
func (*MsgKey) msg()        {}
func (*MsgKeyAck) msg()     {}
