package peer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// rough remembers paths on which links to a node could not be opened, so that others are taken for a while. What is held against a path is
// that node's alone: a node names addresses of others as its own, if it likes.
type rough struct {
	mu    sync.Mutex
	paths map[way]rest
}

// way is a path to a node.
type way struct {
	node string
	ends
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

// maxRough bounds how many are remembered of one node, since peers name their ends: with more, all of that node are forgotten.
const maxRough = 1 << 10

func (r *rough) mark(node string, e ends) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths == nil {
		r.paths = map[way]rest{}
	}
	now, n := time.Now(), 0
	for old, x := range r.paths {
		switch {
		case now.Sub(x.until) > roughLast: // nobody goes there any more
			delete(r.paths, old)
		case old.node == node:
			n++
		}
	}
	if n >= maxRough {
		r.drop(func(w way) bool { return w.node == node })
	}
	w := way{node, e}
	wait := min(max(2*r.paths[w].wait, roughFirst), roughLast)
	r.paths[w] = rest{now.Add(wait), wait}
}

// drop forgets some. The caller holds mu.
func (r *rough) drop(which func(way) bool) {
	maps.DeleteFunc(r.paths, func(w way, _ rest) bool { return which(w) })
}

// smooth takes back what was held against a path.
func (r *rough) smooth(node string, e ends) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paths, way{node, e})
}

func (r *rough) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.paths)
}

// forgetTo forgets paths to some addresses of a node.
func (r *rough) forgetTo(node string, all []Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(func(w way) bool {
		return w.node == node && slices.ContainsFunc(all, func(a Address) bool { return a.IP == w.remote })
	})
}

// without leaves out paths that are left alone.
func (r *rough) without(node string, paths []Path) []Path {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(paths, func(p Path) bool { return now.Before(r.paths[way{node, p.ends()}].until) })
}

// due says whether there is a path to a node that may be tried again.
func (r *rough) due(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for w, x := range r.paths {
		if w.node == node && now.After(x.until) {
			return true
		}
	}
	return false
}
