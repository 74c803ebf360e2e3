package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// In ragged seeds a whole node stands still now and then, as a machine that swaps or is moved. Its timers fire late, all
// at once, and what was said to it meanwhile comes then. What it owes others in time it owes so much later.

// standStill has the node do nothing for a while.
func (n *Node) standStill(d transfer.Time) {
	c := n.c
	if !n.up || c.now < n.still { // what waits for its end would come in another order if that were later
		return
	}
	c.tracef("%s STANDS STILL for %dms", n.name, d/ms)
	n.still = c.now + d
	c.lost += d
	for _, o := range c.ops {
		if o.sess.node == n && o.limit > 0 && o.ends[o.sess] == nil {
			o.limit += d
		}
	}
}

// due does what was planned for a life of the daemon, if it still lives, as soon as its node does not stand still.
func (n *Node) due(life int, do func()) {
	switch c := n.c; {
	case n.life != life || !n.up:
	case c.now < n.still:
		c.after(n.still-c.now, func() { n.due(life, do) })
	default:
		do()
	}
}

// afterAll does something once that much time has passed in which no node stood still.
func (c *Cluster) afterAll(d transfer.Time, do func()) {
	lost := c.lost
	c.after(d, func() {
		if more := c.lost - lost; more > 0 {
			c.afterAll(more, do)
		} else {
			do()
		}
	})
}
