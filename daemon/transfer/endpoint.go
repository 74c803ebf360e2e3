package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// These are the operations of the ends of pipes and lookup buffers. Each end is a session of its own (Endpoint). An
// item that is put is an offer, and a GET that found one is a take. Who gets which item is decided by package match;
// everything else is the machine's.

// BindKind numbers are ring.h's enum kvpipe_bind_kind.
type BindKind uint8

// The kinds of ends. A home holds the items, and the other ends look for them there.
const (
	BindSend   BindKind = 1 // home of a pipe
	BindRecv   BindKind = 2
	BindOwn    BindKind = 3 // home of a lookup buffer
	BindSelect BindKind = 4
)

func (k BindKind) home() bool   { return k == BindSend || k == BindOwn }
func (k BindKind) buffer() bool { return k == BindOwn || k == BindSelect }

// Match numbers are ring.h's enum kvpipe_match.
type Match uint8

// How an item is found.
const (
	MatchNext    Match = 1
	MatchAny     Match = 2
	MatchPrefix  Match = 3
	MatchExact   Match = 4
	MatchKey     Match = 5
	MatchItem    Match = 6
	MatchDecline Match = 7
)

// BindOp makes the session an end of the pipe or lookup buffer with that name. It runs until the end is closed.
type BindOp struct {
	Kind     BindKind
	Name     string
	Token    []byte // must be equal at all ends; nil: none
	Peer     string // the home's node; "": this one
	Capacity uint64 // home: declared bytes
	Linger   Time   // home: how long items outlive the session; 0: default
}

// PutOp publishes blocks of the session's arena as an item; it ends when the item is consumed. In the arena's layout a
// token is a byte.
type PutOp struct {
	Target uint64 // UserData of the home's bind
	Form   Match  // of a pipe Next; of a lookup buffer Any, Prefix or Key
	Bytes  uint64 // what the blocks cover, from token 0
	Meta   []byte
	Key    []byte
	Tokens []uint32
	Blocks []layout.BlockList
}

// GetOp asks for an item.
type GetOp struct {
	Target  uint64 // UserData of the receiving bind
	Match   Match
	Room    uint64 // bytes that the blocks cover, from token 0
	Seq     uint64 // Next: the item's number; Item, Decline: Got.Item of the earlier GET
	Key     []byte
	Tokens  []uint32
	Timeout Time
	Blocks  []layout.BlockList
}

func (*BindOp) op() {}
func (*PutOp) op()  {}
func (*GetOp) op()  {}

// Got is what a GET brought, or, with Complete.Short, what it had no room for.
type Got struct {
	Item     uint64
	Bytes    uint64
	Capacity uint64 // declared bytes of the home
	Matched  uint64 // tokens that agree; of a GET for any item, the item's tokens
	Meta     []byte
}

// submitEnd dispatches the operations of ends; submit has checked that the session may begin one.
func (m *Machine) submitEnd(s *session, sub *Submit) {
	switch in := sub.Op.(type) {
	case *BindOp:
		m.submitBind(s, sub, in)
	case *PutOp:
		m.submitPut(s, sub, in)
	case *GetOp:
		m.submitGet(s, sub, in)
	default:
		m.refuse(s, sub, because(Invalid, "the session is the end of a pipe or lookup buffer and knows no %s; use another session", KindOf(sub.Op)))
	}
}

// bindOf finds the end that an operation is for.
func bindOf(s *session, target uint64) (*bind, Cause) {
	o := s.ops[target]
	if o == nil {
		return nil, because(Closed, "no end of this session has the user_data %#x: it is closed, or never was open", target)
	}
	b, ok := o.owner.(*bind)
	switch {
	case !ok:
		return nil, because(Invalid, "the operation %#x is not the end of a pipe or lookup buffer", target)
	case o.stage != stageRunning:
		return nil, because(Closed, "%s is closed at this end", b.name)
	}
	return b, Cause{}
}
