package peer

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// maxRuns is how many runs of a node's daemon are remembered, the last ones.
	maxRuns = 8
	// namesakeShown is how long people are shown that a node has a namesake, after the last sign of it.
	namesakeShown = 10 * time.Minute
)

// run is one run of a node's daemon, as it was met last.
type run struct {
	incarnation uint64
	from        string // where it connected from, or was reached
}

// history is which runs of a node's daemon this node has met, the last one last. A daemon that was restarted is never
// the one before again. So if one comes again after another one, both run, with the name and certificate of one node.
type history struct {
	runs  []run
	noted time.Time // when a run last came again
	text  string    // about it
}

// meet notes that c is about to be its node's channel. It returns where the other daemon of that name was met, if there
// is one. The caller holds mu.
func (m *Manager) meet(c *channel) (other string) {
	h := m.met[c.node]
	if h == nil {
		if len(m.met) >= maxLost {
			for node := range m.met { // any one: it takes a few channels more to know of its namesake
				delete(m.met, node)
				break
			}
		}
		h = new(history)
		m.met[c.node] = h
	}
	is := run{c.incarnation, c.tcp.RemoteAddr().String()}
	at := slices.IndexFunc(h.runs, func(r run) bool { return r.incarnation == is.incarnation })
	if last := len(h.runs) - 1; at >= 0 && at < last {
		other = h.runs[last].from
		h.noted, h.text = time.Now(), fmt.Sprintf("two daemons have its name, at %s and at %s: each ends the other's channels; give each a name and a certificate of its own", other, is.from)
	}
	if at >= 0 {
		h.runs = slices.Delete(h.runs, at, at+1)
	}
	h.runs = append(h.runs, is)
	h.runs = h.runs[max(0, len(h.runs)-maxRuns):]
	return other
}

// namesake says that a node has one, "" if not. The caller holds mu.
func (m *Manager) namesake(node string) string {
	if h := m.met[node]; h != nil && !h.noted.IsZero() && time.Since(h.noted) < namesakeShown {
		return h.text
	}
	return ""
}

// Namesakes says of which nodes two daemons have been met lately, in the order of their names.
func (m *Manager) Namesakes() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(m.met)) {
		if text := m.namesake(node); text != "" {
			out = append(out, fmt.Sprintf("node %q: %s", node, text))
		}
	}
	return out
}

// warnOfNamesake logs that c's node has one, now and then.
func (m *Manager) warnOfNamesake(c *channel, other string) {
	if other != "" && m.namesakes.Due(c.node) {
		m.log.Warn("two daemons have the name and certificate of one node, and each ends the other's channels: give each its own (kvpipectl certs node)",
			"peer", c.node, "address", c.tcp.RemoteAddr(), "other", other)
	}
}
