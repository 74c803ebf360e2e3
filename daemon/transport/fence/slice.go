package fence

import "github.com/kvpipe/kvpipe/daemon/transfer"

type state uint8

const (
	ended state = iota // the zero Slice: not begun, or reported
	idle               // begun, nobody inside
	busy               // a worker is inside
)

// Slice is one attempt of a slice at one end. It belongs to one worker at a time; only Fence acts on it from outside.
// Once ended it can be used again. While idle it is in the ring of its leg, and at no other time in any.
type Slice struct {
	leg        *Leg
	key        transfer.SliceKey
	state      state
	next, prev *Slice
}

// Key names the slice that was begun last. For the worker alone.
func (s *Slice) Key() transfer.SliceKey { return s.key }

// Leg is the one that the slice was begun in last.
func (s *Slice) Leg() *Leg { return s.leg }

// Enter asks to touch the slice's memory. When false the slice was ended by a fence, and its memory is out of bounds.
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

// Leave says that the memory is no longer touched. When false the slice has been ended by a fence meanwhile.
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

// End reports how the slice ended, whether a worker is inside or not; a slice that a fence ended is not reported again.
func (s *Slice) End(cause transfer.Cause) { s.EndBoth(cause, cause) }

// EndBoth is End where both ends are here and fared differently.
func (s *Slice) EndBoth(sent, landed transfer.Cause) {
	s.leg.mu.Lock()
	if s.state == ended {
		s.leg.mu.Unlock()
		return
	}
	s.finish(sent, landed)
}

// finish reports. It is called with the lock held and releases it.
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
