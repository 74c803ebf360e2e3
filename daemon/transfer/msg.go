package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// Msg is a message between two machines. Loss, duplication, reordering and delay of messages may cost time, never a
// promise. The wire format is in peer.proto.
type Msg interface{ msg() }

// RankRef names a rank's layout by its digest; the layout itself travels once per channel, in MsgLayout.
type RankRef struct {
	Rank   uint32
	Digest [32]byte
}

// MsgLayout carries a layout. On the wire the layout is encoded, with its digest. If it does not decode, or has another
// digest, no machine sees it.
type MsgLayout struct{ Layout *layout.Layout }

// MsgTake goes from consumer to producer. It is repeated until it is answered; that also renews the offer's lease.
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

// MsgNeedLayout says that the receiver of MsgTake or MsgGrant does not know these layouts (yet): send them, then repeat.
type MsgNeedLayout struct {
	Xfer    XferID
	End     End // the end that asks
	Digests [][32]byte
}

// MsgParked says that the take is known here and waits: for the offer, for progress, for an engine that is coming back.
type MsgParked struct{ Xfer XferID }

// MsgRefuse says that the take ends here, or, with Retry, that it was not accepted yet.
type MsgRefuse struct {
	Xfer  XferID
	Cause Cause
	Retry Time // nonzero: ask again after this long
}

// MsgGrant is the producer's answer: what will be moved. The same message announces each later segment (Seg > 0).
type MsgGrant struct {
	Xfer        XferID
	Seg         uint32
	Incarnation uint64 // of the offer
	Engine      string
	Whole       bool // everything at the consumer must be covered
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

// MsgGo says that the consumer is ready for the segment's bytes.
type MsgGo struct {
	Xfer XferID
	Seg  uint32
}

// MsgSent says that the producer has read and sent every slice of every segment, under one hold of that incarnation.
type MsgSent struct {
	Xfer        XferID
	Incarnation uint64
	Segs        uint32
}

// MsgResend says that these slices did not land whole. Links that were lost are fenced at the consumer by then.
type MsgResend struct {
	Xfer    XferID
	Seg     uint32
	Attempt uint32
	Slices  []uint32
}

// MsgEnd goes from consumer to producer with the take's terminal state. It is repeated until MsgEndAck. Done is the
// commit record: it counts only for the offer of that incarnation.
type MsgEnd struct {
	Xfer        XferID
	Incarnation uint64 // of the offer, as it was granted; 0: nothing was granted
	Status      Status
	Cause       Cause
}
type MsgEndAck struct{ Xfer XferID }

// MsgAbort goes from producer to consumer: the producer's end is over and its reads are fenced (withdrawn, expired, died, faulted).
type MsgAbort struct {
	Xfer  XferID
	Cause Cause
}

// MsgKey watches or drops a key. The sender draws the ID. MsgKeyAck answers. With an Instance, a drop says that this
// instance of the engine has taken the offer already, while another daemon was there.
type MsgKey struct {
	ID         uint64
	Drop       bool
	Engine     string
	Instance   string
	Key, Token []byte
	Trace      string
	For        Time // watch: how long the interest lasts
}
type MsgKeyAck struct {
	ID    uint64
	Cause Cause
}

// MsgSeek is a GET at another node's pipe or lookup buffer. It is repeated until it is answered. MsgEnd ends it, too.
type MsgSeek struct {
	Xfer     XferID // also of the take that will follow
	Bind     uint64 // the receiving end, drawn by its node
	Home     uint64 // the home that the end has met; 0: none yet, and Seq counts from the first item that it will get
	Base     uint64 // that home's number for the end's item 0
	Buffer   bool
	Name     string
	Token    []byte
	Match    Match
	Seq      uint64
	Key      []byte
	Tokens   []uint32
	Room     uint64
	Keep     Time // how long an item stays reserved for which there is no room
	Deadline Time // duration left

	// Take is what MsgTake would say of an item that fills Room, without Xfer, Key, Token and Deadline. Homes of
	// earlier versions do not know it.
	Take *MsgTake
}

// MsgFound says that an item is reserved for that GET, which takes it by Key and Token. Without these there is no room
// for the item (or a reservation was given back, as asked for). Taken: the home has begun the take that came with
// MsgSeek, as if MsgTake had come.
type MsgFound struct {
	Xfer                           XferID
	Home, Base                     uint64
	Item, Bytes, Capacity, Matched uint64
	Meta, Key, Token               []byte
	Taken                          bool
}

// MsgSeekParked says that the GET is known and waits.
type MsgSeekParked struct {
	Xfer       XferID
	Home, Base uint64 // 0: there is no home yet
	Why        uint8
}

// MsgSeekRefuse says that the GET ends here, or, with Retry, that it was not accepted yet.
type MsgSeekRefuse struct {
	Xfer  XferID
	Cause Cause
	Retry Time // nonzero: ask again after this long
}

// MsgUnbind says that a receiving end is closed. It is repeated until MsgUnbindAck.
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
