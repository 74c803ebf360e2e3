package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// An offer counts as consumed by an engine when all parts of one of its takes are done, whichever daemons they come
// from. The offer ends in the very step in which the producer's daemon hears of the last part: not earlier, and no
// block is held longer.

// taker names a take. Takes of different numbers of parts are different ones.
type taker struct {
	engine            string
	instance, attempt int
	parts             int
}

// tally is which parts of takes are done.
type tally map[taker]map[int]bool

func (t tally) add(o *Op) {
	name := taker{o.sess.eng.name, o.instance, o.attempt, o.parts}
	if t[name] == nil {
		t[name] = map[int]bool{}
	}
	t[name][o.part] = true
}

// engines returns those that have all parts of a take. An engine that takes again is counted once.
func (t tally) engines() map[taker]bool {
	all := map[taker]bool{}
	for name, done := range t {
		if len(done) == name.parts {
			all[taker{engine: name.engine, instance: name.instance}] = true
		}
	}
	return all
}

// took notes a take that is done. Within its own node the producer hears of it at once.
func (o *Op) took() {
	o.req.takers[o.gen].add(o)
	if n := o.sess.node; o.req.prod != nil && n == o.req.from() {
		n.later(0, func() { n.record(o) })
	}
}

// brood is one of the offers under a request's key.
type brood struct {
	req *Request
	gen int
}

// recorded returns the take whose commit record an event brings, if the producer's daemon still knows the transfer.
// Later it may have forgotten what that was about.
func (n *Node) recorded(ev transfer.Event) *Op {
	e, ok := ev.(transfer.PeerMsg)
	if !ok || n.mad != nil || n.c.byName[e.Node].mad != nil { // what it says and is told need not be true
		return nil
	}
	end, ok := e.Msg.(*transfer.MsgEnd)
	if !ok || end.Status != transfer.Done {
		return nil
	}
	i := slices.IndexFunc(n.c.ops, func(o *Op) bool { return o.kind == "take" && o.leg == end.Xfer && o.sess.node.name == e.Node })
	if i < 0 {
		return nil
	}
	for _, x := range n.m.Snapshot().Transfers {
		if x.Xfer == end.Xfer && x.Peer == e.Node && x.End == transfer.Producer && x.State != "ended" {
			return n.c.ops[i]
		}
	}
	return nil
}

// record notes a commit record and checks that an offer that everybody has taken has ended.
func (n *Node) record(o *Op) {
	q := o.req
	of := brood{q, o.gen}
	if n.records[of] == nil {
		n.records[of] = tally{}
	}
	before := len(n.records[of].engines())
	n.records[of].add(o)
	taken := len(n.records[of].engines())
	if taken > before && o.sess.eng.spans() {
		n.c.gathered++
	}
	if taken >= q.consumers && o.gen == q.gens {
		if x, is := offersOf(n)[q.key]; is {
			n.c.fail("node %s: offer of %s stands, and all %d consumers have all their parts: %+v", n.name, q.key, q.consumers, x)
		}
	}
}

// turnedAway checks that a take that was refused for others really was. What its own engine began before and did not
// finish takes no place from it, once the producer has heard that an earlier instance is over.
func (o *Op) turnedAway(text string) {
	q, name := o.req, o.sess.eng.name
	if q.exposed() {
		return
	}
	others := map[taker]bool{}
	for _, x := range q.c.ops {
		mine := x.sess.eng.name == name && (x.instance == o.instance || o.c.now > o.sess.eng.since+echoes+o.c.lost)
		if x.req == q && x.given && !mine && (x.kind == "take" || x.kind == "drop") {
			others[taker{engine: x.sess.eng.name, instance: x.instance}] = true
		}
	}
	for _, t := range q.takers {
		for e := range t.engines() {
			others[e] = true
		}
	}
	if n := len(others) + q.drops; n < q.consumers {
		o.c.fail("op %d: take of %s by %s was refused for others, and there are %d of %d: %s", o.tag, q.key, name, n, q.consumers, text)
	}
}
