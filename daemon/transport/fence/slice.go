package fence

import "github.com/kvpipe/kvpipe/daemon/transfer"

type state uint8

const (
	ended state = iota // the zero Slice: not begun, or reported
	idle               // begun, no worker inside
	busy               // a worker is inside
)

// Slice is one attempt of a slice at one end. It belongs to one worker at a time; only Fence acts on it from outside.
// Once ended, it can be used again. It is in its leg's ring while idle, and in no ring otherwise.
type Slice struct {
	leg        *Leg
	key        transfer.SliceKey
	state      state
	next, prev *Slice
}

// Key names the slice that was last begun here. For the worker alone.
func (s *Slice) Key() transfer.SliceKey { return s.key }

// Leg returns the leg in which the slice was last begun.
func (s *Slice) Leg() *Leg { return s.leg }

// Enter asks to touch the slice's memory. It returns false if a fence has ended the slice; the memory is then off
// limits.
func (s *Slice) Enter() bool {
	s.leg.mu.Lock()
	defer s.leg.mu.Unlock()
	if s.state != idle {
		return false
	}
	s.unlink()
	s.state = busy
	return true
}

// Leave says that the memory is no longer touched. It returns false if a fence has ended the slice meanwhile.
func (s *Slice) Leave() bool {
	l := s.leg
	l.mu.Lock()
	if !l.fenced.Load() {
		s.state = idle
		s.link(&l.idle)
		l.mu.Unlock()
		return true
	}
	s.finish(l.cause, l.cause)
	return false
}

// End reports how the slice ended, whether or not a worker is inside. A slice that a fence has ended is not reported
// again.
func (s *Slice) End(cause transfer.Cause) { s.EndBoth(cause, cause) }

// EndBoth is End for a slice with both ends on this node, which may have fared differently.
func (s *Slice) EndBoth(sent, landed transfer.Cause) {
	s.leg.mu.Lock()
	if s.state == ended {
		s.leg.mu.Unlock()
		return
	}
	s.finish(sent, landed)
}

// finish ends and reports the slice. It is called with the lock held and releases it.
func (s *Slice) finish(sent, landed transfer.Cause) {
	l, key := s.leg, s.key
	s.end()
	l.mu.Unlock()
	l.report(key, sent, landed)
	l.mu.Lock()
	l.open--
	l.settle()
}

func (s *Slice) end() {
	if s.state == idle {
		s.unlink()
	}
	s.state = ended
}

func (s *Slice) link(head *Slice) {
	s.prev, s.next = head.prev, head
	s.prev.next, head.prev = s, s
}

func (s *Slice) unlink() {
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
}
