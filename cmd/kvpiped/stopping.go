package main

import (
	"os"
	"time"
)

// stopping tells a second request to stop from an echo of the first. timeout(1), shells and supervisors send a signal
// both to a process and to its whole group.
type stopping struct {
	by   os.Signal
	when time.Time
}

// echo is how long the same signal counts as an echo.
const echo = 500 * time.Millisecond

// again notes a signal, and says whether it is a second request.
func (s *stopping) again(by os.Signal, now time.Time) bool {
	if s.by == nil {
		s.by, s.when = by, now
		return false
	}
	return by != s.by || now.Sub(s.when) > echo
}
