package transfer

import "slices"

// progressWait is somebody who cannot touch a rank's blocks before its progress reaches value.
type progressWait struct {
	value uint64
	who   progressUser
}

type progressUser interface{ progressed(m *Machine) }

// progressedTo says whether the rank's progress has reached value. If not, who is called once it has, and looks again at
// all that it waits for there: so the lowest of its values is enough, and one call for all that one report brings.
func (m *Machine) progressedTo(s *session, value uint64, who progressUser) bool {
	if s.progress >= value || s.closed {
		return true // the operations of a closed session are about to end: nobody waits for its progress
	}
	for i := range s.waits {
		if w := &s.waits[i]; w.who == who {
			if value < w.value {
				w.value = value
				m.watchFor(s, value)
			}
			return false
		}
	}
	s.waits = append(s.waits, progressWait{value, who})
	m.watchFor(s, value)
	return false
}

// watchFor asks for a value that somebody waits for, unless a lower one was asked for.
func (m *Machine) watchFor(s *session, value uint64) {
	if s.watch == 0 || value < s.watch {
		s.watch = value
		m.emit(WatchProgress{Session: s.id, Value: value})
	}
}

func (m *Machine) progress(ev Progress) {
	s := m.sessions[ev.Session]
	if s == nil || s.closed || ev.Value <= s.progress {
		return
	}
	s.progress = ev.Value
	var due []progressUser
	s.waits = slices.DeleteFunc(s.waits, func(w progressWait) bool {
		if w.value > s.progress {
			return false
		}
		due = append(due, w.who)
		return true
	})
	for _, who := range due {
		who.progressed(m)
	}
	m.watchProgress(s)
}

// unwait drops the waits of somebody who is over.
func (m *Machine) unwait(s *session, who progressUser) {
	if len(s.waits) == 0 {
		return
	}
	s.waits = slices.DeleteFunc(s.waits, func(w progressWait) bool { return w.who == who })
	m.watchProgress(s)
}

// watchProgress asks for the lowest value that somebody waits for.
func (m *Machine) watchProgress(s *session) {
	least := uint64(0)
	for _, w := range s.waits {
		if least == 0 || w.value < least {
			least = w.value
		}
	}
	if least != s.watch && !s.closed {
		s.watch = least
		m.emit(WatchProgress{Session: s.id, Value: least})
	}
}
