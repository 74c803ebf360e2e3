// Package damper keeps a record that could be repeated over and over from filling the log. Counters are not affected.
package damper

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Gap is how long a warning is not repeated.
const Gap = 10 * time.Second

// Damper is for one warning. The zero value is ready. It is safe for concurrent use.
type Damper struct {
	mu   sync.Mutex
	said time.Time
}

// Due reports whether to log the warning now. After true the caller must log it.
func (d *Damper) Due() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !d.said.IsZero() && now.Sub(d.said) < Gap {
		return false
	}
	d.said = now
	return true
}

// burst is how many warnings of one name Each lets through before a gap: they may give different reasons.
const burst = 8

// Each is a Damper for a warning that can be about many things, such as nodes, with a gap for each of them. The zero
// value is ready. It is safe for concurrent use, and remembers no name for longer than it has to.
type Each struct {
	mu   sync.Mutex
	said map[string]some
}

type some struct {
	since time.Time
	n     int
}

// Due reports whether to log the warning about name now. After true the caller must log it.
func (e *Each) Due(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if s, known := e.said[name]; known && now.Sub(s.since) < Gap {
		s.n++
		e.said[name] = s
		return s.n <= burst
	}
	maps.DeleteFunc(e.said, func(_ string, s some) bool { return now.Sub(s.since) >= Gap })
	if e.said == nil {
		e.said = map[string]some{}
	}
	e.said[name] = some{now, 1}
	return true
}

const (
	flowBurst = 512         // what a restart may have a user's sessions log: limits.sessions_per_uid
	flowEvery = time.Second // and then
)

// Flow is for a record of what is normal, such as that a session comes, but may be had a thousand times a second by
// whoever wants to fill the log. It lets a burst through, and then one each second. The zero value is ready. It is safe
// for concurrent use.
type Flow struct {
	mu     sync.Mutex
	used   int       // of the burst
	since  time.Time // when that was so
	untold int
}

// Due reports whether to log the record now, and how many were not since the last. After true the caller must log it.
func (f *Flow) Due() (tell bool, untold int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if back := now.Sub(f.since) / flowEvery; back >= time.Duration(f.used) {
		f.used, f.since = 0, now
	} else {
		f.used, f.since = f.used-int(back), f.since.Add(back*flowEvery)
	}
	if f.used >= flowBurst {
		f.untold++
		return false, 0
	}
	f.used++
	untold, f.untold = f.untold, 0
	return true, untold
}

// Record logs text at a level if it is due, else at debug, and says how many were not due since the last that was.
func Record(log *slog.Logger, level slog.Level, due bool, untold int, text string, attrs ...any) {
	if !due {
		level = slog.LevelDebug
	}
	if untold > 0 {
		attrs = append(slices.Clip(attrs), "untold", untold)
	}
	log.Log(context.Background(), level, text, attrs...)
}
