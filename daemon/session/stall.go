package session

import "time"

const (
	stallLimit = 2 * time.Second // clients take the daemon for silent after 5 s, peers after three heartbeats
	stallQuiet = time.Minute     // between two records of it
)

// stall notices that the daemon stood still: what was due came late. A daemon that is stopped, or for which no processor is free, cannot
// say so while it lasts; its clients find it silent, and nothing else would tell why.
type stall struct {
	due, said time.Time
}

// expect says when the watch will be back.
func (s *stall) expect(now time.Time, after time.Duration) time.Duration {
	s.due = now.Add(after)
	return after
}

// late is how long the watch has been due for, 0 when that is nothing to speak of, or was spoken of just now.
func (s *stall) late(now time.Time) time.Duration {
	late := now.Sub(s.due)
	if late < stallLimit || !s.said.IsZero() && now.Sub(s.said) < stallQuiet {
		return 0
	}
	s.said = now
	return late
}
