package transfer

// grave remembers the key of an offer that ended, and drops that came before their offer.
type grave struct {
	key   string
	token []byte // of the offer; nil: there was none
	how   string
	by    string // engine
	at    Time
	drops []dropNote

	watches []watchNote
}

// watchNote is a watch that waits for the offer; by: nil is this node.
type watchNote struct {
	by  *peer
	msg MsgKey
}

type dropNote struct {
	engine string
	token  []byte
}

// graveyard keeps graves for a while, oldest first.
type graveyard struct {
	keys    map[string]*grave
	queue   []*grave
	watches int // of all in the queue
	timer   timer
}

func (m *Machine) bury(o *offer, how string) {
	g := &grave{key: o.key, token: o.token, how: how, by: o.engine.key.name, at: m.now}
	for _, c := range o.claims {
		if c.instance == dropped && !o.joined { // the other ranks' offers are still to come
			g.drops = append(g.drops, dropNote{c.engine, o.token})
		}
	}
	m.remember(g)
}

func (m *Machine) remember(g *grave) {
	y := &m.graves
	y.keys[g.key] = g
	y.queue = append(y.queue, g)
	for len(y.queue) > m.cfg.MaxGraves {
		y.forget()
	}
	if y.timer.pos == 0 {
		m.arm(&y.timer, y, wakeGraves, y.queue[0].at+m.cfg.Graves)
	}
}

func (y *graveyard) forget() {
	g := y.queue[0]
	y.watches -= len(g.watches)
	y.queue[0] = nil
	y.queue = y.queue[1:]
	if y.keys[g.key] == g {
		delete(y.keys, g.key)
	}
}

func (y *graveyard) fire(m *Machine, _ wake) {
	for len(y.queue) > 0 && y.queue[0].at+m.cfg.Graves <= m.now {
		y.forget()
	}
	if len(y.queue) > 0 {
		m.arm(&y.timer, y, wakeGraves, y.queue[0].at+m.cfg.Graves)
	}
}

// verdict says why a key whose offer ended cannot be had, to whom has its token. Another token is that of another offer under the
// same key, which may still come.
func (g *grave) verdict(m *Machine, token []byte) (Cause, bool) {
	if g.token == nil || !sameToken(g.token, token) {
		return Cause{}, false
	}
	return because(Expired, "key %s: its offer by engine %q on node %q %s %s ago; make a new request",
		short(g.key), g.by, m.cfg.Node, g.how, took(m.now-g.at)), true
}

// applyDrops counts drops that came before the offer, and answers those who watch.
func (m *Machine) applyDrops(o *offer) {
	g := m.graves.keys[o.key]
	if g == nil {
		return
	}
	delete(m.graves.keys, o.key)
	for _, d := range g.drops {
		if sameToken(d.token, o.token) {
			o.drop(m, d.engine)
		}
	}
	for i := range g.watches {
		m.keyAsked(g.watches[i].by, &g.watches[i].msg)
	}
}

// dropped is what a drop has instead of an instance: no client can choose it.
const dropped = "\x00"

// drop counts a consumer that needs nothing.
func (o *offer) drop(m *Machine, engine string) {
	if !o.ended {
		c := o.enter(claimName{engine: engine, instance: dropped}, 1)
		o.commit(m, c, 0)
	}
}
