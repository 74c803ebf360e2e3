package session

import "time"

const (
	stallLimit = 2 * time.Second // clients take the daemon for silent after 5 s, peers after three heartbeats
	stallQuiet = time.Minute     // between two log records
)

// stall notices that the daemon stood still, by a timer that came late. A daemon that is stopped, or that gets no
// processor, cannot say so while that lasts. Its clients find it silent, and nothing else would tell why.
type stall struct {
	due, said time.Time
}

// expect notes when the watch will be back, and returns after.
func (s *stall) expect(now time.Time, after time.Duration) time.Duration {
	s.due = now.Add(after)
	return after
}

// late returns how long the watch has been due for. It returns 0 if that is negligible, or if the last report was just
// now.
func (s *stall) late(now time.Time) time.Duration {
	late := now.Sub(s.due)
	if late < stallLimit || !s.said.IsZero() && now.Sub(s.said) < stallQuiet {
		return 0
	}
	s.said = now
	return late
}
