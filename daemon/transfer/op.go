package transfer

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// op is an accepted operation: who is told about it, what it holds, and how it ends.
//
//	running --conclude--> ending --fenced--> released
//	                        |  (grace over)
//	                        +--> reported (MORE) --fenced--> released
type op struct {
	id        OpID
	kind      Kind
	by        *session
	user, tag uint64
	began     Time
	notify    []*session // by first, then the ranks concerned
	credits   int        // still reserved in each of notify
	counts    quota
	late      bool  // no credits are reserved: completions wait until there are some
	ids       int32 // block ids that it keeps; by counts them, too
	held      []hold
	exclusive bool
	stage     stage
	status    Status
	cause     Cause
	doubt     *Cause // why its memory is in quarantine
	untold    bool   // nobody hears of its end: it failed with the daemon
	got       *Got   // of a GET that is done
	short     bool
	grace     timer
	cancels   []canceller
	owner     owner

	held1   [1]hold // room for what most have: one rank, and perhaps its scheduler
	notify2 [2]*session
}

type stage uint8

const (
	stageRunning stage = iota
	stageEnding
	stageReported
	stageReleased
)

// hold is what an operation acquired in one rank's table of holds.
type hold struct {
	s     *session
	lists []layout.BlockList
}

// owner is the offer, take, key operation, end or item behind an op.
type owner interface {
	// cancel ends it on its client's behalf.
	cancel(m *Machine, o *op)
	// lost ends it because a session concerned is gone or was told to go.
	lost(m *Machine, o *op, s *session, cause Cause)
	// busy is true while its memory may be touched.
	busy() bool
	// account returns what a session is told at the end.
	account(o *op, s *session) (bytes uint64, failed []layout.Run)
	// freed is called once the op was reported and released.
	freed(m *Machine, o *op)
}

// canceller is a cancel or withdraw that waits for the op's end.
type canceller struct {
	s         *session
	user, tag uint64
	id        OpID
	kind      Kind
}

// begin accepts an operation: it reserves credits in every session that will be told. On refusal nothing is reserved.
func (m *Machine) begin(o *op, sub *Submit, s *session, ranks []*session, credits int, own owner) Cause {
	o.notify = append(o.notify2[:0], s)
	for _, r := range ranks {
		if r != s {
			o.notify = append(o.notify, r)
		}
	}
	for _, n := range o.notify {
		if n.credits < credits {
			return n.crowded(credits)
		}
	}
	o.id, o.kind, o.by, o.user, o.tag = m.newOp(), KindOf(sub.Op), s, sub.UserData, sub.Tag
	o.began, o.credits, o.owner = m.now, credits, own
	for _, n := range o.notify {
		n.reserve(credits)
		if !o.late || o.held != nil { // items without bytes are in ops alone
			n.uses[o] = struct{}{}
		}
	}
	s.ops[o.user] = o
	s.used[o.counts]++
	o.countIDs(idsOf(sub.Op))
	return Cause{}
}

// countIDs counts block ids that the operation keeps until it is released.
func (o *op) countIDs(n int) {
	o.ids += int32(n)
	o.by.used[quotaBlockIDs] += n
}

func (m *Machine) newOp() OpID { m.lastOp++; return m.lastOp }

func rankName(s *session) string {
	if s.role == Scheduler {
		return "the scheduler"
	}
	return fmt.Sprint(s.rank)
}

// called is the session's name within a sentence.
func (s *session) called() string {
	switch s.role {
	case Scheduler:
		return rankName(s)
	case Endpoint:
		return "this end"
	}
	return "rank " + rankName(s)
}

// acquire takes holds on the blocks in every rank's table, or in none.
func (m *Machine) acquire(o *op, ranks []*session, lists []layout.BlockList) Cause {
	if o.held == nil {
		o.held = o.held1[:0]
	}
	if m.cfg.Broken.Groups {
		lists = slices.DeleteFunc(slices.Clone(lists), func(b layout.BlockList) bool { return b.Group > 0 })
	}
	from := len(o.held)
	for _, s := range ranks {
		if _, err := s.holds.Acquire(lists, o.exclusive); err != nil && !m.cfg.Broken.Hold {
			for _, h := range o.held[from:] {
				h.s.holds.Release(h.lists, o.exclusive)
			}
			o.held = o.held[:from]
			return because(Busy, "rank %d: %v", s.rank, err)
		} else if err == nil {
			o.held = append(o.held, hold{s, lists})
		}
	}
	return Cause{}
}

func (o *op) letGo() {
	for _, h := range o.held {
		h.s.holds.Release(h.lists, o.exclusive)
	}
	o.held = nil
}

// conclude fixes how the op ends. It is reported once its memory is fenced, or, after the grace, with MORE.
func (m *Machine) conclude(o *op, status Status, cause Cause) {
	if o.stage != stageRunning {
		return
	}
	o.stage, o.status, o.cause = stageEnding, status, cause
	if o.owner.busy() {
		m.arm(&o.grace, o, wakeGrace, m.now+m.cfg.FenceGrace)
		return
	}
	m.settle(o)
}

// settle moves on an op whose memory was fenced: it reports or releases it.
func (m *Machine) settle(o *op) {
	if o.owner.busy() {
		return
	}
	switch o.stage {
	case stageEnding:
		m.disarm(&o.grace)
		o.letGo()
		m.report(o, o.status, false)
	case stageReported:
		o.letGo()
		m.report(o, Released, false)
	default:
		return
	}
	o.stage = stageReleased
	for _, n := range o.notify {
		delete(n.uses, o)
		if n.alive() {
			n.reserved -= o.credits
			m.credit(n, o.credits)
		}
	}
	delete(o.by.ops, o.user)
	o.by.used[o.counts]--
	o.countIDs(-int(o.ids))
	o.owner.freed(m, o)
}

// fire reports the op with MORE: the grace is over.
func (o *op) fire(m *Machine, _ wake) {
	if o.stage == stageEnding {
		o.stage = stageReported
		m.report(o, o.status, true)
		if o.doubt != nil {
			m.report(o, Quarantined, false)
		}
	}
}

// quarantine notes that a fence failed: the memory is not free until a later one succeeds.
func (m *Machine) quarantine(o *op, cause Cause) {
	if o.doubt != nil || o.stage == stageRunning || o.stage == stageReleased {
		return
	}
	o.doubt = &cause
	if o.stage == stageEnding {
		m.disarm(&o.grace)
		o.fire(m, wakeGrace)
		return
	}
	m.report(o, Quarantined, false)
}

// report completes the op in every session concerned. If nobody hears of its end, nobody hears of what follows, either: a
// cancel or withdrawal that was answered would be forgotten, and the next daemon would be asked for its target again.
func (m *Machine) report(o *op, status Status, more bool) {
	if !o.late {
		o.credits--
	}
	o.untold = o.untold || m.frozen && status == Failed
	c := Complete{Tag: o.tag, Kind: o.kind, Age: m.now - o.began, Op: o.id, Status: status, More: more}
	m.traceEnd(o, status, more)
	switch status {
	case Released:
	case Quarantined:
		c.Reason, c.Text = o.doubt.Reason, "the memory must not be touched until RELEASED: "+o.doubt.Text
	default:
		c.Reason, c.Text = o.cause.Reason, o.cause.Text
	}
	for _, n := range o.notify {
		if !o.late {
			n.reserved--
		}
		if !n.alive() || o.untold {
			continue
		}
		if m.cfg.Broken.Ranks == o.kind && n != o.by {
			if c.More = false; status > WasCancelled {
				continue
			}
		}
		c.Session, c.UserData = n.id, 0
		if n == o.by {
			c.UserData = o.user
		}
		if status <= WasCancelled {
			c.Bytes, c.Failed = o.owner.account(o, n)
			if m.cfg.Broken.Count {
				c.Bytes, _ = o.owner.account(o, o.by)
			}
		}
		if status == Done {
			c.Got, c.Short = o.got, o.short
		}
		if o.late {
			m.owe(n, c)
			continue
		}
		m.emit(c)
	}
	for _, w := range o.cancels {
		if status == Quarantined || o.untold {
			continue
		}
		s := Done
		if status == Released {
			s = Released
		}
		m.tell(w.s, Complete{Session: w.s.id, UserData: w.user, Tag: w.tag, Kind: w.kind, Op: w.id, Status: s, More: more})
	}
}
