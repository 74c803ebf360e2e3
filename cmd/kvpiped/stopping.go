package main

import (
	"os"
	"time"
)

// stopping tells a second wish to stop from the first one's echo: timeout(1), shells and supervisors send a signal to a process and to its
// whole group.
type stopping struct {
	by   os.Signal
	when time.Time
}

// echo is how soon the same signal means nothing new.
const echo = 500 * time.Millisecond

// again notes a signal, and says whether it is a second wish.
func (s *stopping) again(by os.Signal, now time.Time) bool {
	if s.by == nil {
		s.by, s.when = by, now
		return false
	}
	return by != s.by || now.Sub(s.when) > echo
}
