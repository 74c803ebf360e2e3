package session

import (
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// What a session may have in memory is for the machine to judge. But a record of a few bytes may stand for a million
// block ids, there may be any number of items, and while the machine is busy nothing of that has been judged. So a
// session is not read while what it submitted is more than the machine lets it have: then some of it has not been
// judged, and will be refused, or its answers have not been collected. The session itself refuses nothing for that: the
// items of a pipe have no gaps.

// load is what operations take that are not released.
type load struct{ ids, tokens, items int }

// add adds what another operation takes, or takes it off (times -1).
func (l *load) add(o load, times int) {
	l.ids += times * o.ids
	l.tokens += times * o.tokens
	l.items += times * o.items
}

// work is how much the machine has to look at.
func (l *load) work() int64 { return int64(l.ids) + int64(l.tokens) }

// weigh returns how much the machine has to look at for an operation; none is nil. What ends another one, which takes a few
// bytes, has it let go of all that that one was given. The caller holds mu.
func (s *session) weigh(e *ring.SQE, op transfer.Op, takes load) int64 {
	if op != nil && (e.Op == ring.OpWithdraw || e.Op == ring.OpCancel) {
		o := s.ops[e.Target]
		return o.work() + o.added
	}
	return takes.work()
}

func loadOf(op transfer.Op) load {
	switch op := op.(type) {
	case *transfer.OfferOp:
		return load{ids: layout.CountIDs(op.Blocks)}
	case *transfer.ExtendOp:
		return load{ids: layout.CountIDs(op.Blocks)}
	case *transfer.TakeOp:
		return load{ids: layout.CountIDs(op.Blocks)}
	case *transfer.PutOp:
		return load{ids: layout.CountIDs(op.Blocks), tokens: len(op.Tokens), items: 1}
	case *transfer.GetOp:
		return load{ids: layout.CountIDs(op.Blocks), tokens: len(op.Tokens)}
	}
	return load{}
}

// room reports whether the next submission need not wait for others. The caller holds mu.
func (s *session) room() bool { return s.ahead.room(s.works) && s.fits() }

// fits reports whether the next submission need not wait until others are released. The caller holds mu.
func (s *session) fits() bool {
	m := &s.srv.most
	return (s.next.ids == 0 || s.load.ids <= int(m.ids.Load())) && (s.next.tokens == 0 || s.load.tokens <= transfer.MaxHeldTokens) &&
		(s.next.items == 0 || s.load.items < itemsAnswered+3*int(m.items.Load()))
}

// One session's submissions are handled one after the other with all others', and a million block ids take milliseconds. So
// that nobody waits for more than about that for each other session, a session is not read while more than mostAhead
// ids and tokens of it have not been handled, and larger submissions are passed on one by one. Nor is it read while
// opsAhead operations have not been handled: a queue may hold tens of thousands that name no block. A few of those do not
// wait for a large one, so that what seals an offer, say, follows it at once. stepAhead and stepOps are how many are
// counted at a time: counting costs as much as handling a small submission.
const (
	mostAhead = 1 << 18
	stepAhead = 1 << 14
	opsAhead  = 1 << 10
	stepOps   = 1 << 6
)

// ahead counts block ids and tokens that the session has passed on, or let go of, and that were not handled yet; and
// operations.
type ahead struct {
	n, ops          atomic.Int64
	later, laterOps int64 // not counted yet; guarded by in
}

// room reports whether another operation may be passed on, which n ids and tokens are about.
func (a *ahead) room(n int64) bool {
	before := a.n.Load()
	return a.ops.Load() < opsAhead && (n == 0 || before == 0 || before+n <= mostAhead)
}

// passed counts an operation that was passed on.
func (a *ahead) passed(n int64, after func(func())) {
	a.later += n
	if a.laterOps++; a.later < stepAhead && a.laterOps < stepOps {
		return
	}
	n, ops := a.later, a.laterOps
	a.later, a.laterOps = 0, 0
	a.n.Add(n)
	a.ops.Add(ops)
	after(func() {
		a.n.Add(-n)
		a.ops.Add(-ops)
	})
}

// itemsAnswered is how many items may have been answered, besides two for each that the machine lets a session have,
// without that the client has collected the answers; the machine ends sessions with more.
const itemsAnswered = maxInflight

// most are the highest limits that ever applied: what was accepted under them stays.
type most struct{ ids, items atomic.Int64 }

// raise notes limits. The caller sees to it that nobody else does.
func (m *most) raise(l Limits) {
	m.ids.Store(max(m.ids.Load(), int64(l.BlockIDs)))
	m.items.Store(max(m.items.Load(), int64(l.Items)))
}

// opened is an operation that is not released.
type opened struct {
	as size
	load
	added int64 // what extensions of it had to be looked at for
}
