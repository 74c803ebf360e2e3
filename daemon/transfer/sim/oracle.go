package sim

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// quiet is true once nothing is left that has to end.
func (c *Cluster) quiet() bool {
	for _, o := range c.ops {
		if o.given && !o.freed && (o.kind != "small" || c.opts.Ends || o.sess.lazy) && o.hopes() { // ends have many items, whose completions come first; others may collect late
			return false
		}
	}
	for _, n := range c.nodes {
		if !n.up {
			return false
		}
		if len(n.m.PeerUses()) > 0 {
			return false
		}
		s := n.m.Snapshot()
		if len(s.Offers)+len(s.Transfers)+len(s.Pipes)+s.HoldsShared+s.HoldsExclusive > 0 {
			return false
		}
		if slices.ContainsFunc(s.Sessions, inUse) { // what its ranks are to be told waits for those that are not back
			return false
		}
		for _, x := range n.sessions {
			if !x.open || x.leaving {
				return false
			}
		}
		if slices.ContainsFunc(n.engines, (*Engine).returning) { // what their daemon has for all ranks waits for the last one
			return false
		}
	}
	return true
}

// inUse says whether a session still uses anything that is limited.
func inUse(x transfer.SessionInfo) bool {
	return slices.ContainsFunc(x.Quotas, func(q transfer.QuotaInfo) bool { return q.Used > 0 && q.Key != "limits.pipes" }) // that is the whole engine's
}

// hopes is true while a session that lives may still be told something.
func (o *Op) hopes() bool {
	for _, s := range o.concerned {
		if s.open {
			return true
		}
	}
	return false
}

// checkEnd: every operation has ended everywhere, and nothing is left of it.
func (c *Cluster) checkEnd() {
	for _, o := range c.ops {
		if o.given && !o.freed {
			c.checkEnded(o)
		}
	}
	for _, n := range c.nodes {
		for _, x := range n.m.PeerUses() { // a count that never falls uses up the limit one day
			c.fail("node %s: nothing is under way, and of what a peer may make it keep this is used: %+v", n.name, x)
		}
		s := n.m.Snapshot()
		for _, x := range s.Offers {
			c.fail("node %s: offer of key %s is left, state %s", n.name, x.Key, x.State)
		}
		for _, x := range s.Transfers {
			c.fail("node %s: transfer %x of key %s is left, end %d state %s", n.name, x.Xfer, x.Key, x.End, x.State)
		}
		for _, x := range s.Pipes {
			c.fail("node %s: %+v is left", n.name, x)
		}
		if s.HoldsShared+s.HoldsExclusive > 0 {
			c.fail("node %s: %d shared and %d exclusive holds are left", n.name, s.HoldsShared, s.HoldsExclusive)
		}
		for _, x := range s.Sessions {
			if x.Closing {
				c.fail("node %s: session %d was closed and never drained, %d legs", n.name, x.Session, x.Legs)
			} else if x.Operations+x.Offers+x.Legs > 0 {
				c.fail("node %s: session %d has %d operations, %d offers and %d legs left", n.name, x.Session, x.Operations, x.Offers, x.Legs)
			}
			if inUse(x) {
				c.fail("node %s: session %d has no operations left, and uses %+v", n.name, x.Session, x.Quotas)
			}
		}
		for id, l := range n.legs {
			if !c.opts.Broken.Fence {
				c.fail("node %s: leg %v (fenced: %v) was never forgotten", n.name, id, l.fenced)
			}
		}
	}
}

func (c *Cluster) checkEnded(o *Op) {
	refused := o.refused()
	for _, s := range o.concerned {
		if !s.open || s.away && s.heir != nil { // its successor is connected, and it still asks for its own place
			continue
		}
		if o.kind == "small" && s.away && s.instance != s.eng.instance { // it stands still, and nobody waits for it
			continue
		}
		switch u := o.ends[s]; {
		case u == nil && (refused || o.crowded): // the daemon does not know whom an operation concerns that it does not begin
		case u == nil:
			c.fail("op %d (%s of %s): session %d of %s was never told how it ended", o.tag, o.kind, o.about(), s.id, s.eng.name)
		case !u.released:
			c.fail("op %d (%s of %s): session %d was promised RELEASED and never got it", o.tag, o.kind, o.about(), s.id)
		}
	}
}

func (o *Op) about() string {
	if o.req == nil {
		return "?"
	}
	return o.req.key
}

func sortedSessions(m map[transfer.SessionID]*Session) []*Session {
	out := make([]*Session, 0, len(m))
	for _, s := range m {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Session) int { return cmp.Compare(a.id, b.id) })
	return out
}
