package session

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A record is logged when a session opens, and another when it ends. Anybody who may connect can do both a thousand
// times a second, and the journal, or whoever rotates files, would throw away what others should read.
const (
	comingsBurst = 512         // of one user at once: those of a restart, limits.sessions_per_uid
	comingsEvery = time.Second // and then
)

// comings bounds these records. Users share an allowance if their numbers end alike: as many as users would be as many
// as an outsider likes. The zero value is ready, and safe for concurrent use.
type comings struct {
	mu   sync.Mutex
	last [64]allowance
}

type allowance struct {
	used   int
	since  time.Time // how much was used
	untold int       // since the last that was told
}

// due reports whether to log a record for everybody, and how many have not been logged so since the last.
func (c *comings) due(uid uint32) (tell bool, untold int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, now := &c.last[uid%uint32(len(c.last))], time.Now()
	if back := now.Sub(a.since) / comingsEvery; back >= time.Duration(a.used) {
		a.used, a.since = 0, now
	} else {
		a.used, a.since = a.used-int(back), a.since.Add(back*comingsEvery)
	}
	if a.used >= comingsBurst {
		a.untold++
		return false, 0
	}
	a.used++
	untold, a.untold = a.untold, 0
	return true, untold
}

// tell logs a record about the session: for everybody if it is due, else for whoever debugs.
func (s *session) tell(due bool, untold int, text string, attrs ...any) {
	level := slog.LevelInfo
	if !due {
		level = slog.LevelDebug
	}
	if untold > 0 {
		attrs = append(attrs, "untold", untold)
	}
	s.log.Log(context.Background(), level, text, attrs...)
}
