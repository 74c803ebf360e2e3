package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// reload has a daemon read its configuration again. What has changed in it needs no restart: leases, and limits,
// which may be lower than what is in use. The next daemon has the same configuration.
func (n *Node) reload() {
	r, c := &n.c.rng, &n.cfg
	some := func(lo, hi int) int {
		if r.hit(70) {
			return 0 // the default, which nobody reaches
		}
		return r.in(lo, hi)
	}
	c.OfferWait, c.DefaultLease, c.MaxLease = r.span(200*ms, 5*second), r.span(500*ms, 5*second), r.span(second, maxTime)
	c.OrphanLease = 0
	if r.hit(70) {
		c.OrphanLease = r.span(50*ms, 3*second)
	}
	n.orphans = max(n.orphans, c.OrphanLease)
	c.TombstoneFor = r.span(20*second, 60*second)
	c.MaxOps, c.MaxOffers, c.MaxBlockIDs = some(4, 20), some(1, 6), some(20, 100)
	c.MaxItems, c.MaxPipes = some(2, 12), some(1, 3)
	if n.c.opts.Lapse == Reread {
		c.FenceGrace = second
	}
	n.c.tracef("%s RELOAD %+v", n.name, *c)
	n.reloaded = true
	n.m.Reload(*c)
	n.c.reloads++
}

// longest returns for how long the daemon renews a lease that is to be renewed for d.
func (n *Node) longest(d transfer.Time) transfer.Time {
	if n.cfg.MaxLease > 0 {
		return min(d, n.cfg.MaxLease)
	}
	return d
}
