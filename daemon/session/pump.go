package session

import (
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Credits. The machine gets as many credits as the client asked for completion entries, and writes no completion
// without one. What the session answers by itself (refusals, NOP) is marked in the ring and uses further entries: the
// ring has twice as many as the client asked for. A submission is read only while the unconsumed completions and the
// unreleased operations together are fewer than those further entries. So the ring never overflows, and a client that
// collects nothing finds its submission queue full. Nor is one read for which there is no room: see load.go.

// batch is how many submissions one turn reads, so that many sessions share a poller fairly. What is passed on is bounded
// by room. But a record of megabytes, or of a few bytes for a million block ids, costs as much if it is refused, and
// nothing bounds how many are. So a turn ends after one.
const batch = 64

// read is the session's reader goroutine: it sleeps until the client rings.
func (s *session) read() {
	raw, err := s.fds.sqFile.SyscallConn()
	if err != nil {
		s.end(transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("submission eventfd: %v", err)})
		return
	}
	// The Go runtime's poller is edge-triggered and each ring is an edge, so the eventfd's count is never read. That
	// saves a system call on the way in, which the client could make block by changing the open file's flags.
	wake := func(uintptr) bool { return s.awake() }
	for {
		if raw.Read(wake) != nil {
			return // closed
		}
		s.count.wakeups.Add(1)
		for {
			_, full, stalled := s.pump()
			if stalled && !s.waitResume() {
				return
			}
			if s.takesNone() {
				return // awake would now say true each time, until the eventfd is closed
			}
			if !full && !stalled {
				break
			}
		}
		if s.srv.busy != nil {
			s.srv.busy.wake()
		}
	}
}

// takesNone reports whether nothing is taken in any more.
func (s *session) takesNone() bool {
	s.in.Lock()
	defer s.in.Unlock()
	return s.stopped
}

// awake reports whether there is something to do. If not, it is safe to sleep.
func (s *session) awake() bool {
	s.checkProgress()
	s.in.Lock()
	defer s.in.Unlock()
	if s.stopped {
		return true
	}
	if b := s.srv.busy; b != nil && b.polling.Load() {
		return false // the poller looks, and arms before it sleeps
	}
	return !s.sq.Arm()
}

// waitResume waits until the next submission need not wait. False means that the session ends.
func (s *session) waitResume() bool {
	select {
	case <-s.resume:
		return true
	case <-s.ending:
		return false
	}
}

// pump reads up to batch submissions and returns how many. full means that there may be more. stalled means that the
// next one has to wait until completions are consumed, or operations released.
func (s *session) pump() (n int, full, stalled bool) {
	s.in.Lock()
	n, full, stalled = s.pumpLocked()
	s.in.Unlock()
	if n > 0 || stalled {
		s.srv.cfg.Flush()
	}
	return n, full, stalled
}

func (s *session) pumpLocked() (n int, full, stalled bool) {
	var e ring.SQE
	for ; n < batch && !s.stopped; n++ {
		ok, err := s.sq.Next(&e)
		if err != nil {
			s.violated(err)
			return n, false, false
		}
		if !ok {
			return n, false, false
		}
		did := later
		if s.admissible() {
			if did, err = s.submit(&e); err != nil {
				s.violated(err)
				return n, false, false
			}
		}
		if did == later {
			s.waiting.Store(int64(s.srv.age()))
			s.stalled.Store(true)
			s.srv.look()
			return n, false, true
		}
		s.sq.Advance()
		if did == refused && e.RecLen > 0 {
			return n + 1, true, false
		}
	}
	return n, !s.stopped, false
}

// outcome is what was done with a submission.
type outcome uint8

const (
	passed  outcome = iota // on to the machine; or it was a NOP
	refused                // and answered
	later                  // nothing: it has to wait until others are released, and was not looked at
)

// readOut reads what a client that is gone, or leaves, had published, even if it no longer rang: to its caller, that
// was submitted. It reads no more than a full queue, since a forked child may go on writing. Completions that the
// client has not collected no longer count: the machine gets all credits back, so that it refuses nothing for want of
// them. For room it waits as others do (load.go), though not for ever: the machine judges nothing of a session that it
// has ended.
func (s *session) readOut() {
	s.in.Lock()
	s.mu.Lock()
	s.unread = true
	credits := s.cq.Abandon()
	s.mu.Unlock()
	s.in.Unlock()
	s.giveBack(credits)
	waited := time.Duration(0)
	for left := int(s.geometry.SQ); left > 0; {
		n, full, stalled := s.pump()
		if !full && !stalled {
			return
		}
		left -= n
		for stalled && s.stalled.Load() { // resume is the reader's
			since := time.Now()
			select {
			case <-time.After(lazyWatch):
			case <-s.srv.forced:
				return
			}
			s.mu.Lock()
			if !s.fits() {
				waited += time.Since(since)
			}
			s.mu.Unlock()
			if waited >= readOutWait {
				return
			}
		}
	}
}

// readOutWait is how long the submissions of a client that is gone may wait until others are released, all together.
const readOutWait = 5 * time.Second

// giveBack returns credits to the machine.
func (s *session) giveBack(credits int) {
	if credits > 0 {
		s.srv.cfg.Events(transfer.CreditsReturned{Session: s.id, N: credits})
	}
}

// violated ends a session that broke the protocol. The caller holds in.
func (s *session) violated(err error) {
	s.stopped = true
	c := causeOf(err)
	c.Reason = transfer.Invalid
	s.end(c)
}

// admissible reports whether one more submission can be answered, whatever it is, or needs no answer.
func (s *session) admissible() bool {
	if s.unread {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cq.Outstanding()+s.running() < s.reserve {
		return true
	}
	s.collect(s.srv.cfg.Queue)
	return s.cq.Outstanding()+s.running() < s.reserve
}

// submit passes one submission on, or refuses it, unless it has to wait. An error is a breach of the protocol.
func (s *session) submit(e *ring.SQE) (did outcome, err error) {
	if e.UserData == 0 || e.UserData>>63 != 0 {
		return refused, fmt.Errorf("submission %d: user_data is %#x: must not be 0 nor have its top bit set", s.sq.Head(), e.UserData)
	}
	rec, err := s.copyRecord(e)
	if err != nil {
		return refused, fmt.Errorf("submission %d: %w", s.sq.Head(), err)
	}
	op, err := Decode(e, rec, s.layers.Len())
	var takes load
	if err == nil {
		takes = loadOf(op)
	}
	s.mu.Lock()
	work := s.weigh(e, op, takes)
	if s.next, s.works = takes, work; !s.room() {
		s.mu.Unlock()
		return later, nil
	}
	s.next, s.works = load{}, 0
	s.count.submissions.Add(1)
	if err == nil {
		err = s.accept(e, op, takes)
	}
	if _, breach := err.(*breach); breach {
		s.mu.Unlock()
		return refused, err
	}
	if err != nil || op == nil {
		if err != nil {
			did = refused
		}
		err = s.answerSelf(e, causeOf(err))
		s.mu.Unlock()
		return did, err
	}
	if s.scarce() {
		s.collect(s.srv.cfg.Queue) // first, so that the machine does not refuse for want of credits that were given back
	}
	s.mu.Unlock()
	s.outdated.mu.Lock() // until it is queued: the machine hears of a worker that comes now only after it
	if s.outdated.has(s.sq.Head()) {
		transfer.OfBefore(op)
	}
	s.srv.cfg.Queue(transfer.Submit{Session: s.id, UserData: e.UserData, Tag: e.Tag, Op: op})
	s.outdated.mu.Unlock()
	s.ahead.passed(work, s.srv.cfg.After)
	return passed, nil
}

// copyRecord copies the record of a submission, unless that is so long that Decode refuses it unseen. An error is a breach
// of the protocol.
func (s *session) copyRecord(e *ring.SQE) (rec []byte, err error) {
	switch {
	case e.RecLen == 0:
		return nil, nil
	case e.RecLen > maxRecord:
		_, err = s.sq.Locate(e.RecOff, e.RecLen)
		return nil, err
	}
	if rec, err = s.sq.Record(s.record, e.RecOff, e.RecLen); err != nil {
		return nil, err
	}
	if s.record = rec; cap(rec) > 1<<16 {
		s.record = nil // large ones are rare
	}
	return rec, nil
}

// scarce reports whether the machine may soon lack credits that the client has already given back; an operation takes
// up to three. While there are plenty, nobody looks. The caller holds mu.
func (s *session) scarce() bool {
	out := s.cq.Outstanding()
	return out > s.reserve/8 || out+3*s.running() > s.reserve/2
}

// breach is an error that ends the session.
type breach struct{ text string }

func (b *breach) Error() string { return b.text }

// accept remembers an operation until it is released. The caller holds mu.
func (s *session) accept(e *ring.SQE, op transfer.Op, takes load) error {
	if _, double := s.ops[e.UserData]; double {
		// A refusal would be taken for the end of the operation that has this user_data.
		return &breach{fmt.Sprintf("submission %d: user_data %#x names an operation that is not released yet", s.sq.Head(), e.UserData)}
	}
	if op == nil {
		return nil
	}
	as := counted(e.Op)
	if n := s.open[large]; as == large && n >= s.inflight {
		return refuse(transfer.Quota, "this session has %d operations that are not released, the limit is %d (limits.inflight, at most a third of cq_entries = %d): wait for some of them, or raise that", n, s.inflight, s.reserve)
	}
	s.ops[e.UserData] = opened{as: as, load: takes}
	if e.Op == ring.OpExtend {
		if o, ok := s.ops[e.Target]; ok {
			o.added += takes.work()
			s.ops[e.Target] = o
		}
	}
	s.open[as]++
	s.load.add(takes, 1)
	return nil
}

// size is how an operation counts until it is released.
type size uint8

const (
	large size = iota
	small      // it acts on another operation and is answered at once, unless that one waits for its ranks after a restart
	item       // in a pipe or lookup buffer: there are many, and their completions wait in the machine until there is room
	numSizes
)

func counted(op uint8) size {
	switch {
	case op == ring.OpPut:
		return item
	case hasTarget(op) && op != ring.OpGet:
		return small
	}
	return large
}

// running counts the operations that are not released, except items. The caller holds mu.
func (s *session) running() uint32 { return uint32(s.open[large] + s.open[small]) }

// released forgets an operation. The caller holds mu.
func (s *session) released(userData uint64) {
	if o, ok := s.ops[userData]; ok {
		s.open[o.as]--
		s.load.add(o.load, -1)
		delete(s.ops, userData)
	}
}

// answerSelf completes a NOP, or a submission that is refused. The caller holds in and mu.
func (s *session) answerSelf(e *ring.SQE, c transfer.Cause) error {
	cqe := ring.CQE{UserData: e.UserData, Tag: e.Tag, Status: uint16(transfer.Done)}
	if c.Reason != transfer.OK {
		s.count.refusals.Add(1)
		cqe.Status, cqe.Reason = uint16(transfer.Failed), uint16(c.Reason)
	}
	if err := s.put(&cqe, nil, nil, c.Text, true); err != nil {
		return err
	}
	s.ring()
	return nil
}
