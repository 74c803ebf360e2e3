package peer

import (
	"slices"
	"sync"
	"time"
)

// rough remembers paths on which links could not be opened, so that others are taken for a while.
type rough struct {
	mu    sync.Mutex
	paths map[ends]rest
}

type rest struct {
	until time.Time
	wait  time.Duration // that led to until
}

// A path that led nowhere is left alone for so long, doubled each time; news of NICs, here or there, end it early.
const (
	roughFirst = 30 * time.Second
	roughLast  = 30 * time.Minute
)

// maxRough bounds how many are remembered, since peers name their ends: with more, all are forgotten.
const maxRough = 1 << 12

func (r *rough) mark(e ends) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths == nil {
		r.paths = map[ends]rest{}
	}
	now := time.Now()
	for old, x := range r.paths {
		if now.Sub(x.until) > roughLast { // nobody goes there any more
			delete(r.paths, old)
		}
	}
	if len(r.paths) >= maxRough {
		clear(r.paths)
	}
	wait := min(max(2*r.paths[e].wait, roughFirst), roughLast)
	r.paths[e] = rest{now.Add(wait), wait}
}

// smooth takes back what was held against a path.
func (r *rough) smooth(e ends) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paths, e)
}

func (r *rough) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.paths)
}

// forgetTo forgets paths to some addresses.
func (r *rough) forgetTo(all []Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.paths {
		if slices.ContainsFunc(all, func(a Address) bool { return a.IP == e.remote }) {
			delete(r.paths, e)
		}
	}
}

// without leaves out paths that are left alone.
func (r *rough) without(paths []Path) []Path {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(paths, func(p Path) bool { return now.Before(r.paths[p.ends()].until) })
}

// due says whether there is a path that may be tried again.
func (r *rough) due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, x := range r.paths {
		if now.After(x.until) {
			return true
		}
	}
	return false
}
