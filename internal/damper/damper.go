// Package damper keeps a warning that could be said over and over from filling the log. What is counted is counted all the same.
package damper

import (
	"maps"
	"sync"
	"time"
)

// Gap is how long a warning that was said is not said again.
const Gap = 10 * time.Second

// Damper is for one warning. The zero value is ready. It is safe for concurrent use.
type Damper struct {
	mu   sync.Mutex
	said time.Time
}

// Due says whether to say it now. Whoever is told yes does.
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

// burst is how many warnings Each lets through before a gap: they may give different reasons.
const burst = 8

// Each is for a warning of which each one it is about has its own: a node, for example. The zero value is ready. It is safe for concurrent use,
// and remembers nobody for longer than it has to.
type Each struct {
	mu   sync.Mutex
	said map[string]some
}

type some struct {
	since time.Time
	n     int
}

// Due says whether to say it of name now. Whoever is told yes does.
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
