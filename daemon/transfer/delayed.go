package transfer

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// delayedSubmit is a submission that waits for ranks that were here before a restart.
type delayedSubmit struct {
	s     *session
	sub   Submit
	at    Time
	until Time // 0: it has no time limit of its own
	ids   int  // block ids in it
	late  timer
	ended bool // its time is over, or it was withdrawn
}

// delayedSubmits are those of one session, in the order in which they came.
type delayedSubmits struct {
	list  []*delayedSubmit
	named map[uint64]*delayedSubmit // those that have not ended, by their user data
	n     int                       // those that have not ended
	ranks int                       // of these, the ones about ranks; the others only wait their turn
	ids   int
}

// maxDelayed bounds the submissions that a session has waiting: all that it had before the restart, with each extension
// of an offer counted by itself, and what it asks for meanwhile. Their block ids count against the session's own limit.
const maxDelayed = 1 << 16

// waits says whether a submission has to wait: it is about ranks that are not back, or earlier submissions of its
// session wait. A submission that ends one of those need not; see delay. Nor does one that needs memory which is away: it
// is to fail, and that memory may be there again, with something else in it, before the ranks are.
func (h *homecoming) waits(s *session, op Op) bool {
	if s.delayed.n == 0 && (len(h.sessions) == 0 || s.role != Scheduler || !aboutRanks(op) || h.ranksOut(s.engine) == 0) {
		return false
	}
	return !aboutRanks(op) || overWithDaemon(op) || !s.asleep()
}

func aboutRanks(op Op) bool {
	switch op.(type) {
	case *OfferOp, *TakeOp:
		return true
	}
	return false
}

// delay keeps a submission that has to wait. It returns false if the submission has to be carried out now.
func (h *homecoming) delay(m *Machine, s *session, sub *Submit) bool {
	if !h.waits(s, sub.Op) {
		return false
	}
	if target, ok := endedBy(sub.Op); ok {
		x := s.delayed.find(target)
		if x == nil {
			return false // it runs, or is over
		}
		if !overWithDaemon(x.sub.Op) {
			x.withdraw(m)
			m.answer(s, sub)
			return true
		}
	}
	x := &delayedSubmit{s: s, sub: *sub, at: m.now, until: m.endBy(sub.Op), ids: idsOf(sub.Op)}
	cause := m.within(s, quotaBlockIDs, x.ids)
	if s.delayed.n >= maxDelayed {
		cause = because(Quota, "this session has %d submissions that wait for %d ranks after the restart of the daemon of node %q, the limit: wait until the ranks are back",
			s.delayed.n, h.ranksOut(s.engine), m.cfg.Node)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return true
	}
	h.keep(x)
	h.offer(x, 1)
	if x.until > 0 {
		m.arm(&x.late, x, wakeDeadline, x.until)
	}
	return true
}

// endedBy returns the operation that a submission is there to end. Such a submission waits for no rank, nor for its turn.
func endedBy(op Op) (target uint64, ok bool) {
	switch in := op.(type) {
	case *CancelOp:
		return in.Target, true
	case *WithdrawOp:
		return in.Target, true
	}
	return 0, false
}

// find looks for a submission that waits.
func (l *delayedSubmits) find(user uint64) *delayedSubmit { return l.named[user] }

func (h *homecoming) keep(x *delayedSubmit) {
	l := &x.s.delayed
	if len(l.list) == 0 {
		h.waiting = append(h.waiting, x.s)
	}
	l.list = append(l.list, x)
	l.count(x, 1)
	if l.named == nil {
		l.named = map[uint64]*delayedSubmit{}
	}
	if l.named[x.sub.UserData] == nil { // no client uses a number twice at a time
		l.named[x.sub.UserData] = x
	}
}

func (l *delayedSubmits) count(x *delayedSubmit, n int) {
	l.n += n
	l.ids += n * x.ids
	if aboutRanks(x.sub.Op) {
		l.ranks += n
	}
}

// release goes on with what need not wait any more.
func (h *homecoming) release(m *Machine) {
	waiting := h.waiting
	h.waiting = nil
	for _, s := range waiting {
		h.releaseOf(m, s)
	}
}

func (h *homecoming) releaseOf(m *Machine, s *session) {
	list := s.delayed.list
	s.delayed = delayedSubmits{}
	for _, x := range list {
		switch {
		case x.ended:
		case h.waits(s, x.sub.Op):
			h.keep(x)
		default:
			m.disarm(&x.late)
			h.offer(x, -1)
			x.resume(m)
		}
	}
}

// forget drops what a closed session had waiting.
func (h *homecoming) forget(m *Machine, s *session) {
	for _, x := range s.delayed.list {
		m.disarm(&x.late)
		h.offer(x, -1)
	}
	s.delayed = delayedSubmits{}
	h.waiting = slices.DeleteFunc(h.waiting, func(w *session) bool { return w == s })
}

// fire ends the submission: its time is over.
func (x *delayedSubmit) fire(m *Machine, _ wake) {
	x.end(m, Failed, because(Timeout, "%d ranks of engine %q did not come back within %s after the restart of the daemon of node %q",
		m.home.ranksOut(x.s.engine), x.s.engine.key.name, duration(m.now-x.at), m.cfg.Node))
}

// abandonMemory ends the submissions that are about memory of this rank, and wait for other ranks.
func (h *homecoming) abandonMemory(m *Machine, s *session, cause Cause) {
	for _, w := range s.engine.scheds {
		for _, x := range slices.Clone(w.delayed.list) {
			switch in := x.sub.Op.(type) { // nil: it has ended
			case *OfferOp:
				x.end(m, Failed, m.bereft(s, string(in.Key), cause, Unavailable, "offer again when it is back"))
			case *TakeOp:
				if !in.Restarted { // else only its ranks have to hear of it still
					x.end(m, Failed, m.bereft(s, string(in.Key), cause, Unavailable, "take again when it is back"))
				}
			}
		}
	}
}

// end ends a submission that will never begin. If the submissions behind it only waited their turn, they go on.
func (x *delayedSubmit) end(m *Machine, status Status, cause Cause) {
	h, s := &m.home, x.s
	m.disarm(&x.late)
	x.ended = true
	s.delayed.count(x, -1)
	h.offer(x, -1)
	if s.delayed.named[x.sub.UserData] == x {
		delete(s.delayed.named, x.sub.UserData)
	}
	m.endUnbegun(s, &x.sub, status, cause)
	x.sub = Submit{}
	switch l := &s.delayed; {
	case l.ranks == 0:
		h.waiting = slices.DeleteFunc(h.waiting, func(w *session) bool { return w == s })
		h.releaseOf(m, s)
	case len(l.list) > 2*l.n+16:
		l.list = slices.DeleteFunc(l.list, func(x *delayedSubmit) bool { return x.ended })
	}
}

// withdraw ends the submission on its client's behalf. If it is an offer, whoever asks for its key hears the same as of
// an offer that had begun.
func (x *delayedSubmit) withdraw(m *Machine) {
	in, offers := x.sub.Op.(*OfferOp)
	x.end(m, WasCancelled, because(Cancelled, "cancelled by its owner before it began"))
	if !offers || m.offers[string(in.Key)] != nil { // another offer has the key by now
		return
	}
	key := string(in.Key)
	before := m.graves.keys[key]
	if before != nil {
		m.unearth(before)
	}
	m.bury(&offer{key: key, token: in.Token, engine: x.s.engine}, withdrawn)
	if before != nil {
		m.answerWatches(before)
	}
	m.wakeKey(key)
}

// offers says whether an offer under the key waits here. Then takes wait for it, whatever became of an earlier offer.
func (h *homecoming) offers(key string) bool { return h.offered[key] > 0 }

// offer counts n more submissions like x, if it is an offer. Of one that has ended nothing is left to count.
func (h *homecoming) offer(x *delayedSubmit, n int) {
	in, offers := x.sub.Op.(*OfferOp)
	if !offers {
		return
	}
	if h.offered == nil {
		h.offered = map[string]int{}
	}
	key := string(in.Key)
	if h.offered[key] += n; h.offered[key] == 0 {
		delete(h.offered, key)
	}
}

// resume submits the submission, with the time that is left.
func (x *delayedSubmit) resume(m *Machine) {
	left := max(x.until-m.now, 1)
	switch in := x.sub.Op.(type) {
	case *TakeOp:
		in.Timeout = left
	case *WatchOp:
		in.Timeout = left
	case *DropOp:
		in.Timeout = left
	}
	m.submit(&x.sub)
}

// endBy returns the time by which an operation that comes now has to end; 0: when what it acts on ends. There is no
// limit for a take that failed with the daemon before this one: its ranks have to hear of it whenever they are back.
func (m *Machine) endBy(op Op) Time {
	if overWithDaemon(op) {
		return 0
	}
	switch in := op.(type) {
	case *TakeOp:
		return m.now + m.clampTimeout(in.Timeout)
	case *WatchOp:
		return m.now + m.keyWait(in.Timeout)
	case *DropOp:
		return m.now + m.keyWait(in.Timeout)
	}
	return 0
}

// idsOf counts the block ids of an operation. An offer may be extended so often that the pieces take more memory than
// their ids. So the pieces of extensions count, too.
func idsOf(op Op) int {
	switch in := op.(type) {
	case *OfferOp:
		return layout.CountIDs(in.Blocks)
	case *ExtendOp:
		return heldOf(in.Blocks)
	case *TakeOp:
		return layout.CountIDs(in.Blocks)
	case *PutOp:
		return layout.CountIDs(in.Blocks)
	case *GetOp:
		return layout.CountIDs(in.Blocks)
	}
	return 0
}
