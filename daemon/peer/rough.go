package peer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// rough remembers the paths on which links to a node could not be opened, so that links avoid them for a while. A mark
// counts for that node alone, since a node may claim the addresses of others as its own.
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
	wait  time.Duration // the pause that ends at until
}

// A path that led nowhere is avoided for roughFirst, then for twice as long each time, up to roughLast. News of NICs,
// here or there, ends that early.
const (
	roughFirst = 30 * time.Second
	roughLast  = 30 * time.Minute
)

// maxRough bounds the paths remembered for one node, since peers name their ends. When it is reached, all paths of that
// node are forgotten.
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
		case now.Sub(x.until) > roughLast: // out of use
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

// drop forgets some paths. The caller holds mu.
func (r *rough) drop(which func(way) bool) {
	maps.DeleteFunc(r.paths, func(w way, _ rest) bool { return which(w) })
}

// smooth removes the mark of a path.
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

// forgetTo forgets the paths to some addresses of a node.
func (r *rough) forgetTo(node string, all []Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(func(w way) bool {
		return w.node == node && slices.ContainsFunc(all, func(a Address) bool { return a.IP == w.remote })
	})
}

// without removes the paths that are being avoided.
func (r *rough) without(node string, paths []Path) []Path {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(paths, func(p Path) bool { return now.Before(r.paths[way{node, p.ends()}].until) })
}

// due says whether some path to a node may be tried again.
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
