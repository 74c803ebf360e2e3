package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// However long two nodes were apart, an item that an open end has received is done once they meet again, unless
// another end asked for it meanwhile.

// outage parts a home from one of its ends. From some time before that, the home hears nothing from the end's node.
func (c *Cluster) outage() {
	r, p := &c.rng, pick(&c.rng, c.pipes)
	end, home := pick(r, p.ends).eng.node.name, p.home.eng.node.name
	if end == home {
		return
	}
	way := [2]string{end, home}
	c.net.deaf[way] = true
	c.net.silence(home, end)
	c.after(r.span(0, 600*ms), func() {
		delete(c.net.deaf, way)
		if pair := ends(end, home); !c.calm {
			c.part(pair, r.span(second, c.cut))
			c.net.sever(pair)
		}
	})
}

// patient says whether an application that waits until its peer's node is back asks again, with the end that it has.
func (e *receiver) patient(x transfer.Complete) bool {
	return e.c.cut > briefly && (x.Reason == transfer.Timeout || strings.Contains(x.Text, "was not reached"))
}

// heard is how long the word about an item takes at most between nodes with a channel. It may be lost, and is
// repeated.
const heard = 8 * second

// reunite is called when a home has a channel again to a node whose word it had given up waiting for.
func (w *network) reunite(home, peer *Node) {
	c, epoch := w.c, home.views[peer.name]
	untold := c.untold(home, peer)
	if len(untold) == 0 {
		return
	}
	c.reunited++
	c.after(heard, func() {
		if home.views[peer.name] != epoch || peer.views[home.name] != epoch {
			return // they lost each other once more
		}
		for _, t := range untold {
			if running(t.put) && running(t.gotFor) {
				t.home.fail("op %d: item %x of %s is not done, and its end has had it since before an outage", t.put.tag, t.id, t.home.name)
			}
		}
	})
}

// untold returns a home's items that the only end of their pipe or buffer has received on the peer, of which the home
// may not have heard.
func (c *Cluster) untold(home, peer *Node) (all []*thing) {
	for _, id := range slices.Sorted(maps.Keys(c.items)) {
		t := c.items[id]
		only := len(t.home.ends) == 1 && t.key == "" // what has a key stays for the next reader
		if only && t.home.eng.node == home && t.got > 0 && t.gotBy == peer && running(t.put) && !t.put.sess.lazy && running(t.gotFor) {
			all = append(all, t)
		}
	}
	return all
}
