package sim

import (
	"bytes"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// For a client with the right token a watch renews an offer's lease, and a drop counts as a take of it, both at once.
// A watch is not done before there is an offer. To check this, the daemon that has the key is looked at before and
// after the step in which it is asked.

// question returns the watch or drop that an event brings to the daemon that has the key; nil: none.
func (n *Node) question(ev transfer.Event) *transfer.MsgKey {
	switch ev := ev.(type) {
	case transfer.PeerMsg:
		k, _ := ev.Msg.(*transfer.MsgKey)
		return k
	case transfer.Submit:
		s := n.sessions[ev.Session]
		switch in := ev.Op.(type) {
		case *transfer.WatchOp:
			if s != nil && (in.Peer == "" || in.Peer == n.name) {
				return &transfer.MsgKey{Engine: s.eng.name, Key: in.Key, Token: in.Token, For: in.Timeout}
			}
		case *transfer.DropOp:
			if s != nil && (in.Peer == "" || in.Peer == n.name) {
				return &transfer.MsgKey{Engine: s.eng.name, Key: in.Key, Token: in.Token, Drop: true}
			}
		}
	}
	return nil
}

// foresee notes a drop at the address of the daemon that has the key: it counts as soon as the daemon knows that the
// address is its own.
func (n *Node) foresee(ev transfer.Event) {
	sub, _ := ev.(transfer.Submit)
	in, _ := sub.Op.(*transfer.DropOp)
	s := n.sessions[sub.Session]
	if in == nil || s == nil || in.Peer != n.name+port {
		return
	}
	if q := n.c.requestOf(string(in.Key)); q != nil && q.at(n) {
		q.dropped[s.eng.name] = true
	}
}

// requestOf returns the request with that key, or nil.
func (c *Cluster) requestOf(key string) *Request {
	for _, q := range c.requests {
		if q.key == key {
			return q
		}
	}
	return nil
}

// hear notes the answer to a watch or drop, the acknowledgement of a commit record, and to whom items are handed.
func (n *Node) hear(e transfer.Effect) {
	if c, ok := e.(*transfer.Complete); ok {
		e = *c
	}
	n.hands(e)
	switch e := e.(type) {
	case transfer.Send:
		switch a := e.Msg.(type) {
		case *transfer.MsgKeyAck:
			n.answer = &a.Cause
		case *transfer.MsgEndAck:
			n.acked = a.Xfer
		}
	case transfer.Complete:
		if e.Kind == transfer.KindWatch || e.Kind == transfer.KindDrop {
			n.answer = &transfer.Cause{Reason: e.Reason}
		}
	}
}

// ask takes the step in which the daemon is asked, and checks what it does.
func (n *Node) ask(k *transfer.MsgKey, ev transfer.Event) {
	c, key := n.c, string(k.Key)
	q := c.requestOf(key)
	if q == nil || !q.at(n) || q.astray >= 0 { // whose token it has is chance
		n.take(ev)
		return
	}
	if !c.fixed {
		n.take(transfer.Progress{}) // changes nothing, but the machine looks at its clock
	}
	before, was := offersOf(n)[key]
	n.answer = nil
	n.take(ev)
	after, is := offersOf(n)[key]
	_, remote := ev.(transfer.PeerMsg)
	if n.answer == nil && !(remote && was) { // it waits, or its session may not ask
		return
	}
	yes, right := n.answer != nil && n.answer.Reason == transfer.OK, bytes.Equal(k.Token, q.token)
	counted := after.Consumed > before.Consumed || q.dropped[k.Engine]
	switch {
	case right && was && !yes && remote:
		c.fail("node %s: who asks for key %s, which is offered, with its token, hears %v", n.name, key, n.answer)
	case !k.Drop && !was && yes:
		c.fail("node %s: a watch of key %s is answered, and nothing is offered", n.name, key)
	case !right && was && (yes || !is || counted && !q.dropped[k.Engine] || after.Lease > before.Lease):
		c.fail("node %s: somebody without the token of key %s is heard: it was %+v and is %+v", n.name, key, before, after)
	case k.Drop && right && !was && yes:
		q.dropped[k.Engine] = true
		if !slices.ContainsFunc(c.ops, func(o *Op) bool { return o.req == q && o.kind == "offer" && o.given }) {
			q.early = n.life
		}
	case !right || !was || !yes:
	case k.Drop && is && !counted && k.Instance == "": // an instance that is named may have taken it already
		c.fail("node %s: a drop of key %s by %s did nothing: %+v", n.name, key, k.Engine, after)
	case k.Drop:
		q.dropped[k.Engine] = true
	case !is || after.Lease < n.longest(k.For) && after.State != "orphaned":
		c.fail("node %s: a watch of key %s for %v renewed nothing: %+v", n.name, key, k.For, after)
	}
}

// checkEarly checks that a drop that came before the offer counts as soon as there is one, unless the daemon had to forget it.
func (o *Op) checkEarly() {
	q, n := o.req, o.sess.node
	if o.kind != "offer" || q.early != n.life || q.gens > 0 || n.cfg.MaxTombstones > 0 || q.astray >= 0 {
		return
	}
	if x, is := offersOf(n)[q.key]; is && x.Consumed == 0 {
		o.c.fail("op %d: an early drop of key %s did nothing: %+v", o.tag, q.key, x)
	}
}
