package transfer

import (
	"math/bits"
	"slices"
)

// claim is one consumer engine's take of an offer, in parts; or a drop, which counts as a take.
type claim struct {
	claimName
	parts   int
	done    [4]uint64 // committed parts
	live    int       // transfers under way
	failed  bool      // a part failed: if incomplete, and without live transfers, the claim no longer counts
	dropped bool      // a drop
}

type claimName struct {
	engine, instance string
	take             uint64
}

const maxParts = 256

// Words for how an offer ended: all its consumers took it, or its owner withdrew it.
const (
	consumed  = "was consumed"
	withdrawn = "was withdrawn"
)

func (c *claim) committed() int {
	n := 0
	for _, w := range c.done {
		n += bits.OnesCount64(w)
	}
	return n
}

func (c *claim) complete() bool { return c.committed() == c.parts }

// counts says whether the claim occupies one of the offer's places for consumers.
func (c *claim) counts() bool {
	return c.live > 0 || c.complete() || c.committed() > 0 && !c.failed
}

func (o *offer) claim(name claimName) *claim {
	for _, c := range o.claims {
		if c.claimName == name {
			return c
		}
	}
	return nil
}

// of says whether both are takes of the same instance of an engine.
func (a *claimName) of(b *claimName) bool { return a.engine == b.engine && a.instance == b.instance }

// placed returns a complete claim of that engine instance, or nil. An instance that has taken everything has its place
// among the consumers, and may take again.
func (o *offer) placed(name *claimName) *claim {
	for _, c := range o.claims {
		if c.of(name) && c.complete() {
			return c
		}
	}
	return nil
}

// admits says whether a take may begin: its engine instance has a place already, however often it takes, or one is
// left. A take that an earlier instance of the engine left unfinished keeps no place from it.
func (o *offer) admits(name claimName) bool {
	if len(o.claims) < o.consumers || slices.ContainsFunc(o.claims, func(c *claim) bool { return c.of(&name) && c.counts() }) {
		return true
	}
	p := o.places()
	return p.admit(o, name)
}

// places are the engine instances that have a place at an offer, each once, however many takes of it there are.
type places struct {
	firm  map[claimName]bool // by engine and instance; false: only for takes that are unfinished, and of which none is under way
	loose map[string]int     // by engine: how many of its instances are not firm
}

func (o *offer) places() places {
	p := places{firm: map[claimName]bool{}, loose: map[string]int{}}
	for _, c := range o.claims {
		if c.counts() {
			name := claimName{engine: c.engine, instance: c.instance}
			p.firm[name] = p.firm[name] || c.live > 0 || c.complete()
		}
	}
	for name, firm := range p.firm {
		if !firm {
			p.loose[name.engine]++
		}
	}
	return p
}

func (p *places) admit(o *offer, name claimName) bool {
	_, has := p.firm[claimName{engine: name.engine, instance: name.instance}]
	return has || len(p.firm)-p.loose[name.engine] < o.consumers
}

// enter returns the claim with that name and number of parts, and adds it if there is none. The number is compared
// because a commit record that comes late may be of a take with another one.
func (o *offer) enter(name claimName, parts int) *claim {
	for _, c := range o.claims {
		if c.claimName == name && c.parts == parts {
			return c
		}
	}
	o.forgetUnfinished(&name)
	c := &o.claim0
	if c.parts > 0 {
		c = new(claim)
	}
	c.claimName, c.parts = name, parts
	o.claims = append(o.claims, c)
	return c
}

// commit notes a part as taken; the offer ends when all consumers have all their parts.
func (o *offer) commit(m *Machine, c *claim, part int) {
	if o.item != nil {
		o.claims = slices.DeleteFunc(o.claims, func(x *claim) bool { return x == c })
		m.consumed(o.item)
		return
	}
	for m.cfg.Broken.Twice && c.done[part/64]>>(part%64)&1 == 1 {
		part++
	}
	before := o.placed(&c.claimName)
	c.done[part/64] |= 1 << (part % 64)
	if before != nil && before != c && c.complete() { // the engine took it again
		o.astray = o.astray || c.live > 0
		o.claims = slices.DeleteFunc(o.claims, func(x *claim) bool { return x == c })
	}
	complete := 0
	for _, c := range o.claims {
		if c.complete() {
			complete++
		}
	}
	switch {
	case complete >= o.consumers:
		o.end(m, Done, Cause{}, consumed)
	case c.live == 0 && !c.complete(): // the engine's next instance need not wait for the other parts
		m.wakeKey(o.key)
	}
}

// replace aborts an older transfer of the part that v begins. That does not count as a failure, so the engine keeps its
// place. A transfer that has sent everything is left to its consumer, which may have decided already.
func (v *serve) replace(m *Machine) {
	c, failed := v.claim, v.claim.failed
	if c.live == 1 && !v.offer.astray {
		return // there is none: an offer may have thousands of transfers, and each begins here
	}
	var older []*serve
	for _, old := range v.offer.serves {
		if old.claim.claimName == c.claimName && old.take.Part == v.take.Part && old.state == serveMoving && !old.sentAll {
			older = append(older, old)
		}
	}
	for _, old := range older {
		old.abort(m, because(Cancelled, "take %d part %d of engine %q was begun again", c.take, v.take.Part, c.engine))
	}
	c.failed = failed
}

// fail notes that a part did not go through. The offer is then ready for the next take, which may be waiting already.
func (o *offer) fail(m *Machine, c *claim) {
	c.failed = true
	if !c.counts() {
		for i := range o.claims {
			if o.claims[i] == c && (c.committed() == 0 || m.cfg.Broken.Parts) {
				o.claims = append(o.claims[:i], o.claims[i+1:]...)
				break
			}
		}
		m.wakeKey(o.key)
	}
}
