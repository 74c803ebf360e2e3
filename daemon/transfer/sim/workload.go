package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

var wrongToken = []byte("somebody-elses-token")

// workload plans requests and trouble for the whole run; what they do is drawn when their time comes.
func (c *Cluster) workload() {
	r := &c.rng
	for range r.in(10, 30) {
		c.after(r.span(100*ms, 8*second), c.someRequest)
	}
	for _, p := range c.pipes {
		p.begin()
	}
	if c.faults.partition+c.faults.deaf+c.faults.crash+c.faults.client+c.faults.reload > 0 {
		c.after(c.faults.trouble, c.someTrouble)
	}
}

// calmDown ends all trouble: from here on everything has to come to its end.
func (c *Cluster) calmDown() {
	c.tracef("CALM")
	c.calm = true
	c.net.cut, c.net.deaf = map[[2]string]bool{}, map[[2]string]bool{}
	if c.mad != nil {
		c.mad.over()
	}
	for _, p := range c.pipes {
		p.finish()
	}
}

// someTrouble breaks something, and comes again.
func (c *Cluster) someTrouble() {
	if c.calm {
		return
	}
	r := &c.rng
	if r.hit(c.faults.partition) {
		if c.cut > briefly && r.hit(70) {
			c.outage()
		} else {
			pair := ends(pick(r, c.nodes).name, pick(r, c.nodes).name)
			if r.hit(50) {
				c.part(pair, r.span(100*ms, c.cut))
			}
			c.net.sever(pair)
		}
	}
	if r.hit(c.faults.deaf) {
		way := [2]string{pick(r, c.nodes).name, pick(r, c.nodes).name}
		c.net.deaf[way] = true
		long := 2 * second
		if c.cut > briefly { // that an end is closed is said again only for Linger, which is short here
			long = second
		}
		c.after(r.span(100*ms, long), func() { delete(c.net.deaf, way) })
	}
	if r.hit(c.faults.crash) {
		if n := pick(r, c.nodes); n.up {
			n.crash(r.span(10*ms, 2*second))
		}
	}
	if r.hit(c.faults.reload) {
		if n := pick(r, c.nodes); n.up && n.mad == nil {
			n.reload()
		}
	}
	if r.hit(c.faults.drain) {
		if n := pick(r, c.nodes); n.up {
			if r.hit(50) {
				n.stop()
			} else {
				n.drain(transfer.Drain{}, 2*second)
			}
		}
	}
	if r.hit(c.faults.client) {
		if e := pick(r, c.engines); e.node.up {
			e.crash(r)
		}
	}
	if r.hit(c.faults.rank) {
		if e := pick(r, c.engines); e.ready() && e.endpoint == nil {
			e.lose(pick(r, e.all()))
		}
	}
	if r.hit(c.faults.rank / 4) {
		if e := pick(r, c.engines); e.ready() && e.endpoint == nil {
			e.supersede()
		}
	}
	if r.hit(10) {
		if e := pick(r, c.engines); e.ready() {
			s := e.workers[0]
			s.ousted = true
			s.node.step(transfer.RegionRemoved{Session: s.id, Region: region})
			s.node.later(r.span(0, 100*ms), func() { e.crash(r) })
		}
	}
	if r.hit(20) {
		if e := pick(r, c.engines); e.ready() && e.endpoint == nil {
			if s := pick(r, e.workers); !s.sleepy && !s.ousted {
				s.sleep()
			}
		}
	}
	if c.faults.still > 0 && r.hit(c.faults.still) {
		pick(r, c.nodes).standStill(r.span(10*ms, 2*second))
	}
	c.after(r.span(c.faults.trouble/2, c.faults.trouble*2), c.someTrouble)
}

// part keeps two nodes from having a channel for so long.
func (c *Cluster) part(pair [2]string, d transfer.Time) {
	c.net.cut[pair] = true
	c.after(d, func() { delete(c.net.cut, pair) })
}

// someRequest plays one request, with everything that a client may do about it.
func (c *Cluster) someRequest() {
	if c.calm {
		return
	}
	r := &c.rng
	prod := pick(r, c.engines)
	if prod.spans() {
		prod = c.engines[0]
	}
	near := c.cfg.AtOnce > 0 && r.hit(30)
	if near {
		prod = c.engines[len(c.engines)-1]
	}
	var node *Node
	if c.opts.Ragged && !near && r.hit(25) {
		if i := slices.IndexFunc(c.engines, (*Engine).spans); i >= 0 {
			prod = c.engines[i]
			node = pick(r, prod.nodes)
		}
	}
	if !prod.able() {
		return
	}
	n := r.in(1, 3)
	if r.hit(70) {
		n = 1
	}
	q := c.newRequest(prod, n, r.in(1, 24))
	q.node = node
	if r.hit(20) {
		q.content = []byte("lora-7")
	}
	if c.opts.Ragged {
		q.torn, q.loose = pick(r, []int{0, 0, 10, 30, 60}), r.hit(25)
		if q.loose && r.hit(70) {
			q.torn = 0 // then nothing may be missing
		}
		if prod.parts() > 1 && !prod.spans() && r.hit(10) {
			q.astray = r.n(prod.shape.ranks())
		}
	} else if c.slides == 0 && r.hit(5) {
		q.hole = r.n(q.tokens)
	}
	late := 400 * ms
	if c.unsettled() {
		late = 2 * second
	}
	c.after(r.span(0, late), func() { q.produce() })
	engines := slices.Clone(c.engines)
	for i := 0; i < n && len(engines) > 0; i++ {
		k := r.n(len(engines))
		if near && i == 0 {
			k = len(engines) - 2
		}
		if s := slices.IndexFunc(engines, (*Engine).spans); i == 0 && !near && s >= 0 && r.hit(30) {
			k = s
		}
		e := engines[k]
		engines = slices.Delete(engines, k, k+1)
		if e == prod {
			continue
		}
		q.shared = q.shared || e.node.mad != nil
		c.after(r.span(0, 600*ms), func() { q.consume(e, 0) })
		if r.hit(10) { // the same once more, perhaps at the same time
			c.after(r.span(0, 600*ms), func() { q.consume(e, 20) })
		}
	}
}

// produce offers, and may withdraw that again.
func (q *Request) produce() {
	c, r := q.c, &q.c.rng
	if !q.prod.able() {
		return
	}
	p := offerPlan{cuts: []int{q.tokens}, lease: r.span(300*ms, 4*second), layered: r.hit(20), window: pick(r, []window{later, holes, atEnd})}
	if c.unsettled() {
		p.lease += 2 * second
	}
	if r.hit(40) || p.layered {
		p.ahead = r.in(1, 3)
	}
	if r.hit(25) && q.tokens > 2 {
		mid := r.in(1, q.tokens-1)
		p.cuts = []int{mid, q.tokens}
	}
	if c.opts.Ragged && r.hit(50) {
		p.cuts = q.pieces()
	}
	ops := q.offer(p)
	for _, o := range ops {
		o.onEnd = func(x transfer.Complete) { q.offerAnew(x) }
	}
	if len(ops) > 0 && r.hit(c.faults.client/2) {
		c.after(r.span(0, 600*ms), q.bereave)
	}
	if r.hit(15) {
		bad := takePlan{stop: q.tokens, timeout: second, token: q.token, content: q.content, conflict: byOffer}
		c.after(r.span(0, 600*ms), func() { q.mistake(q.prod, bad) })
	}
	if len(ops) == 0 || !r.hit(20+c.faults.churn) {
		return
	}
	o := ops[r.n(len(ops))]
	c.after(r.span(0, 800*ms), func() {
		if o.ends[o.sess] != nil || !o.sess.open {
			return
		}
		o.onEnd = func(transfer.Complete) {
			// The key is used again for something else, token included. Workers that do that without waiting for each other
			// would join what does not belong together.
			if q.gens < 3 && q.node == nil && q.prod.shape.sched && r.hit(70) {
				q.gens++
				q.takers = append(q.takers, tally{})
				again := r.span(0, 300*ms)
				if r.hit(c.faults.churn) {
					again = r.span(0, 5*ms)
				}
				c.after(again, q.produce)
			}
		}
		o.withdrawn = true
		if c.opts.Ragged && r.hit(30) {
			c.newSmall(o.sess, &transfer.CancelOp{Target: o.user}) // the same
			return
		}
		c.newSmall(o.sess, &transfer.WithdrawOp{Target: o.user})
	})
}

// offerAnew: an offer that ended because it was about ranks that were replaced is made again, for the new ones.
func (q *Request) offerAnew(x transfer.Complete) {
	c, r := q.c, &q.c.rng
	if x.Reason == transfer.Restarted && q.node == nil && q.prod.shape.sched && q.gens < 3 && r.hit(70) {
		q.gens++
		q.takers = append(q.takers, tally{})
		c.after(r.span(0, 300*ms), q.produce)
	}
}

// bereave kills the producer under its offer; its next instance may offer under the same key.
func (q *Request) bereave() {
	c, r := q.c, &q.c.rng
	if c.calm || !q.prod.ready() {
		return
	}
	q.prod.crash(r)
	if q.gens < 3 && q.node == nil && r.hit(30) {
		c.after(r.span(0, 2*second), func() {
			if !c.calm && q.prod.ready() {
				q.gens++
				q.takers = append(q.takers, tally{})
				q.produce()
			}
		})
	}
}

// consume takes, drops, watches, cancels, makes mistakes, tries again.
func (q *Request) consume(e *Engine, attempt int) {
	c, r := q.c, &q.c.rng
	if !e.able() {
		return
	}
	p := takePlan{stop: q.tokens, timeout: r.span(100*ms, 6*second), token: q.token, content: q.content, attempt: attempt, layered: r.hit(25), window: pick(r, []window{later, later, later, holes})}
	p.peer = q.from().name
	switch {
	case q.from() == e.node && !e.spans() && r.hit(70):
		p.peer = ""
	case r.hit(10):
		p.peer += port
	case r.hit(2):
		p.peer = "nobody"
	}
	if r.hit(20) {
		p.first = r.n(p.stop)
	}
	if r.hit(5) {
		p.stop += r.in(1, 4)
	}
	if r.hit(30) {
		p.ahead = r.in(1, 2)
	}
	switch {
	case r.hit(3):
		p.token = wrongToken
	case r.hit(2):
		p.content = []byte("other")
	case r.hit(5):
		q.drop(e, p)
		return
	case r.hit(10):
		q.watch(e, p)
	}
	q.share(e, p)
	if r.hit(30) {
		p.conflict = byTake
		c.after(r.span(0, 300*ms), func() { q.mistake(e, p) })
	}
}

// drop says that the engine needs nothing. With a wrong token that has no effect.
func (q *Request) drop(e *Engine, p takePlan) {
	wrong := q.c.rng.hit(15)
	if wrong {
		p.token = wrongToken
	}
	if !wrong || q.astray >= 0 { // then it may be that of the first rank
		q.drops++
	}
	k := q.c.newOp("drop", pick(&q.c.rng, e.askers()), nil)
	k.req, k.timeout = q, p.timeout
	k.submit(&transfer.DropOp{Key: []byte(q.key), Token: p.token, Peer: p.peer, Timeout: p.timeout})
	k.mayCancel()
}

// watch says that the engine will take.
func (q *Request) watch(e *Engine, p takePlan) {
	k := q.c.newOp("watch", pick(&q.c.rng, e.askers()), nil)
	k.req, k.timeout = q, p.timeout
	if q.c.rng.hit(15) {
		if p.token = wrongToken; q.astray < 0 { // else it may be that of the first rank
			k.wrong = q.wrong(e, wrongToken, q.content)
		}
	}
	k.submit(&transfer.WatchOp{Key: []byte(q.key), Token: p.token, Peer: p.peer, Timeout: p.timeout})
	k.mayCancel()
}

// mayCancel cancels a watch or drop now and then, in ragged seeds.
func (o *Op) mayCancel() {
	c, r := o.c, &o.c.rng
	if !c.opts.Ragged || !r.hit(20) {
		return
	}
	c.after(r.span(0, 300*ms), func() {
		if o.in != nil && running(o) {
			c.newSmall(o.sess, &transfer.CancelOp{Target: o.user})
		}
	})
}

// mind is what a client does about a running take.
func (q *Request) mind(o *Op, p takePlan, again int) {
	c, r := q.c, &q.c.rng
	if r.hit(20) {
		c.after(r.span(0, 500*ms), func() {
			if o.sess.open && o.in != nil && o.ends[o.sess] == nil {
				k := c.newSmall(o.sess, &transfer.CancelOp{Target: o.user})
				k.timeout = 1 * ms
			}
		})
	}
	o.onEnd = func(x transfer.Complete) {
		switch {
		case x.Status != transfer.Done && o.sess.eng.parts() > 1 && again < 3 && r.hit(50):
			q.takeAgain(o, p, again+1)
		case x.Status == transfer.Failed && o.attempt < 2 && r.hit(40) && o.part == 0:
			c.after(r.span(0, 200*ms), func() { q.consume(o.sess.eng, o.attempt+1) })
		}
	}
}
