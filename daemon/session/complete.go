package session

import (
	"errors"
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Complete puts one completion into the session's ring. It wakes the client if it sleeps and waits for nothing else;
// other clients are woken by Ring, which has to follow. Completions for sessions that are gone, or that can get no
// more, are ignored. Complete takes about a microsecond. Complete and Ring are for one goroutine at a time: the one
// whose turn it is to run the driver.
func (v *Server) Complete(c transfer.Complete) {
	s := v.find(c.Session)
	if s == nil {
		return
	}
	e := ring.CQE{
		UserData: c.UserData, Tag: c.Tag, OpID: uint64(c.Op), Bytes: c.Bytes, Status: uint16(c.Status), Reason: uint16(c.Reason),
	}
	if c.More {
		e.Flags |= ring.FlagMore
	}
	if c.UserData == 0 {
		e.Flags |= ring.FlagForeign
	}
	if c.Short {
		e.Flags |= ring.FlagShort
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	if err := s.put(&e, c.Got, c.Failed, c.Text, false); err != nil {
		s.end(transfer.Cause{Reason: transfer.Corrupt, Text: fmt.Sprintf("completion could not be written: %v", err)})
		return
	}
	if s.alone(c.UserData) {
		s.ring()
	} else if !s.unrung {
		s.unrung = true
		v.unrung = append(v.unrung, s)
	}
	if final := !c.More && c.Status != transfer.Quarantined; final {
		s.released(c.UserData)
	}
	s.wanted = s.wanted || c.Last
	if s.pressed() {
		s.collect(s.srv.cfg.Events)
		if s.pressed() && !s.eager.Swap(true) {
			s.waiting.Store(int64(s.srv.age()))
			s.srv.look()
		}
	}
}

// Rouse wakes the client, if it sleeps for this operation alone, a little before the completion is written: an idle
// processor takes longer to wake than most of the remaining work.
func (v *Server) Rouse(r transfer.Rouse) {
	s := v.find(r.Session)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return // the memory where its ring was may be another's by now
	}
	if s.alone(r.UserData) && s.cq.Dozing() {
		s.signal()
	}
}

// alone reports whether the session waits for no other operation, so that no other completion is near that the same
// wake-up could announce. The caller holds mu.
func (s *session) alone(userData uint64) bool {
	if len(s.ops) != 1 {
		return len(s.ops) == 0
	}
	_, its := s.ops[userData]
	return its
}

// Ring wakes the sleeping clients for which something was completed since the last call.
func (v *Server) Ring() {
	for i, s := range v.unrung {
		s.mu.Lock()
		s.unrung = false
		if !s.gone {
			s.ring()
		}
		s.mu.Unlock()
		v.unrung[i] = nil
	}
	v.unrung = v.unrung[:0]
}

// put writes a completion and leaves it to the caller to ring. mark says that it uses none of the machine's credits.
// The caller holds mu.
func (s *session) put(e *ring.CQE, got *transfer.Got, failed []layout.Run, text string, mark bool) error {
	if s.unread {
		if !mark {
			s.giveBack(1)
		}
		return nil
	}
	e.Rank, e.Epoch = s.who.Rank, s.srv.cfg.Epoch
	s.result = s.result[:0]
	if got != nil {
		s.result = appendGot(s.result, got)
	} else if len(failed) > 0 || text != "" {
		s.result = appendResult(s.result, failed, text, s.cq.Room())
	}
	err := s.cq.Put(e, s.result, mark)
	if errors.Is(err, ring.ErrFull) {
		// The client may have consumed more since the last look.
		s.collect(s.srv.cfg.Events)
		err = s.cq.Put(e, s.result, mark)
	}
	if err != nil {
		return err
	}
	if cap(s.result) > 1<<14 {
		s.result = nil
	}
	s.count.completions.Add(1)
	return nil
}

// ring wakes the client if it sleeps. The caller holds mu.
func (s *session) ring() {
	if s.cq.Waiting() {
		s.signal()
	}
}

// signal wakes the client. The caller holds mu.
func (s *session) signal() {
	if s.gone {
		return
	}
	s.count.rings.Add(1)
	if s.apart.Load() {
		s.signalApart()
		return
	}
	s.wake()
}

// collect notes what the client has consumed and reports the credits by say, which is Events or Queue. The caller holds
// mu.
func (s *session) collect(say func(transfer.Event)) {
	if s.unread {
		return // it all counts as consumed
	}
	_, credits, err := s.cq.Consumed()
	if err != nil {
		s.end(transfer.Cause{Reason: transfer.Invalid, Text: err.Error()})
		return
	}
	if credits > 0 {
		s.wanted = false
		say(transfer.CreditsReturned{Session: s.id, N: credits})
	}
}

// pressed reports whether to notice soon what the client consumes: because much is not consumed, or because the machine
// has no credit left. Without credits, refusals and small answers come one after another, each for the credit of the
// one before. The caller holds mu.
func (s *session) pressed() bool {
	return !s.unread && (s.wanted || s.cq.Outstanding() > s.reserve/4)
}

// allOf is the count of a run that means every block of its group.
const allOf = ^uint32(0)

// appendResult encodes failed runs and a text in at most room bytes. If there are too many runs, they become one for
// each group; these are never cut. The text is cut to what is left.
func appendResult(b []byte, failed []layout.Run, text string, room int) []byte {
	if len(failed) > ring.MaxFailed || ring.ResultSize+len(failed)*ring.RunSize > room {
		failed = wholeGroups(failed)
	}
	left := room - ring.ResultSize - len(failed)*ring.RunSize
	text = clip(text, max(min(left, 4096), 0))
	b = le.AppendUint32(b, uint32(len(failed)))
	b = le.AppendUint32(b, uint32(len(text)))
	b = le.AppendUint64(b, 0)
	for _, r := range failed {
		b = le.AppendUint32(b, r.Group)
		b = le.AppendUint32(b, r.First)
		b = le.AppendUint32(b, r.Count)
	}
	return append(b, text...)
}

// appendGot encodes what a GET brought. It always fits in ring.MinResult.
func appendGot(b []byte, g *transfer.Got) []byte {
	for _, v := range []uint64{g.Item, g.Bytes, g.Capacity, g.Matched, uint64(len(g.Meta)), 0} {
		b = le.AppendUint64(b, v)
	}
	return append(b, g.Meta...)
}

func wholeGroups(runs []layout.Run) []layout.Run {
	var seen [layout.MaxGroups]bool
	var all []layout.Run
	for _, r := range runs {
		if r.Group < layout.MaxGroups && !seen[r.Group] {
			seen[r.Group] = true
			all = append(all, layout.Run{Group: r.Group, Count: allOf})
		}
	}
	return all
}

// LayerReady publishes in the session's layer slot how many layers of a take are in place.
func (v *Server) LayerReady(e transfer.LayerReady) {
	v.slot(e.Session, func(s *session) error {
		err := s.layers.Set(e.Slot, e.UserData, e.Ready)
		if err == nil {
			s.ring()
		}
		return err
	})
}

// Granted publishes in the session's layer slot that bytes of a take may be written from now on. A client that finds
// this daemon dead looks there; nobody is woken for it.
func (v *Server) Granted(e transfer.Granted) {
	v.slot(e.Session, func(s *session) error { return s.layers.Grant(e.Slot, e.UserData) })
}

func (v *Server) slot(id transfer.SessionID, write func(*session) error) {
	s := v.find(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	if err := write(s); err != nil {
		s.log.Warn("layer slot could not be written", "error", err)
	}
}
