package sim

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// served is an instance of an engine.
type served struct {
	eng      *Engine
	instance int
}

// Node is a machine and what a daemon puts around it: driver, transports, channels, sessions. A crash replaces all of
// it.
type Node struct {
	c        *Cluster
	name     string
	m        *transfer.Machine
	cfg      transfer.Config
	orphans  transfer.Time // the longest OrphanLease that it ever had
	reloaded bool          // its limits are no longer those with which it began
	up       bool
	life     int           // counts starts and crashes: what was planned in an earlier life does not happen
	still    transfer.Time // the node stands still until then
	timer    int
	legs     map[transfer.Leg]*leg
	sessions map[transfer.SessionID]*Session
	engines  []*Engine
	views    map[string]uint64 // peer -> epoch of the channel, as this node sees it
	lastID   transfer.SessionID
	answer   *transfer.Cause // to the last watch or drop that the daemon was asked for
	acked    transfer.XferID // the last commit record that the daemon acknowledged
	records  map[brood]tally // commit records that came, by what was offered
	before   bool            // its daemon is one version older, as far as that matters here
	await    transfer.Time   // scripts: how long the daemon after the next crash awaits engines, which do not come back by themselves
	roster   *roster.Roster
	lives    *roster.Lives[*Session]
	draining bool            // its daemon takes no session back
	stopping bool            // and leaves what is submitted to the next one
	ending   bool            // and reports nothing any more that fails
	mad      *madness        // nil: it is not
	opening  *Session        // the session that the machine is being told of
	met      map[served]bool // which instances it has had sessions of, in all its lives
	away     []*Session      // sessions that wait for the next daemon, in the order in which they came to theirs
}

// AddNode makes a node whose daemon runs.
func (c *Cluster) AddNode(name string) *Node {
	n := &Node{c: c, name: name, cfg: c.cfg, orphans: c.cfg.OrphanLease, met: map[served]bool{}}
	c.nodes = append(c.nodes, n)
	c.byName[name] = n
	n.start(nil)
	return n
}

// start makes a daemon that knows what the one before left, if there was one.
func (n *Node) start(left *roster.File) {
	n.life++
	cfg := n.cfg
	cfg.Node = n.name
	n.c.rng.next() // unused; recorded traces and known seeds were made with this draw
	random := rng(n.c.rng.next())
	cfg.Random = random.next
	n.m = transfer.New(cfg)
	n.up, n.draining, n.stopping, n.ending, n.still = true, false, false, false, 0
	n.roster, n.lives = roster.New(), roster.NewLives[*Session]()
	if left != nil {
		n.roster.Recall(left)
		n.lives.Expect(n.roster)
	}
	n.legs, n.sessions, n.views, n.records = map[transfer.Leg]*leg{}, map[transfer.SessionID]*Session{}, map[string]uint64{}, map[brood]tally{}
}

// later plans something for this life of the daemon.
func (n *Node) later(d transfer.Time, do func()) {
	life := n.life
	n.c.after(d, func() { n.due(life, do) })
}

// event gives the machine an event a little later.
func (n *Node) event(d transfer.Time, ev transfer.Event) { n.later(d, func() { n.step(ev) }) }

func (n *Node) step(ev transfer.Event) {
	if n.c.broken != nil || !n.up {
		return
	}
	if sub, ok := ev.(transfer.Submit); ok && n.sessions[sub.Session] != nil {
		n.sessions[sub.Session].asked = true
	}
	n.foresee(ev)
	if k := n.question(ev); k != nil {
		n.ask(k, ev)
		return
	}
	n.acked = 0
	o := n.recorded(ev)
	n.take(ev)
	if o != nil && n.acked == o.leg { // otherwise it is sent again
		n.record(o)
	}
}

// take gives the machine an event and executes the effects.
func (n *Node) take(ev transfer.Event) {
	c := n.c
	c.steps++
	if c.opts.Trace != nil {
		c.tracef("%s <- %s", n.name, describe(ev))
	}
	var answer transfer.Event // to what is done at once
	for _, e := range n.m.Step(c.now, ev) {
		n.hear(e)
		if c.opts.Trace != nil {
			c.tracef("%s -> %s", n.name, describe(e))
		}
		switch e := e.(type) {
		case *transfer.MoveNow:
			answer = n.moveNow(e)
		case *transfer.Complete:
			n.execute(*e)
		case transfer.Yield:
			answer = transfer.Resume{}
		default:
			n.execute(e)
		}
	}
	if answer != nil {
		n.step(answer)
	}
}

func (n *Node) execute(e transfer.Effect) {
	switch e := e.(type) {
	case transfer.Complete:
		if n.ending && e.Status == transfer.Failed && !n.session(e.Session).lazy { // one that collects late is told what failed before, too
			n.c.fail("node %s: its daemon ends, and reports what fails by that: %+v", n.name, e)
		}
		n.session(e.Session).complete(e)
	case transfer.Granted:
		n.session(e.Session).granted(e)
	case transfer.LayerReady:
		n.session(e.Session).layerReady(e)
	case transfer.WatchProgress:
		n.session(e.Session).watchProgress(e.Value)
	case transfer.EndSession:
		n.session(e.Session).told(e.Cause)
	case transfer.SessionOrphaned:
		n.session(e.Session).orphaned(e)
	case transfer.Brought:
		n.roster.Brought(e.Session)
	case transfer.SessionDrained:
		n.drained(e.Session)
	case transfer.RegionDrained:
		n.session(e.Session).regionDrained()
	case transfer.Dial:
		n.c.net.dial(n, e.Hint)
	case transfer.Send:
		n.say(e)
	case transfer.MakePlan:
		n.makePlan(e)
	case transfer.Expect:
		n.expect(e)
	case transfer.Post:
		for _, k := range e.Keys {
			n.post(k)
		}
	case transfer.ReadInline:
		n.readInline(e)
	case transfer.WriteInline:
		n.writeInline(e)
	case transfer.Fence:
		n.fence(e.Leg)
	case transfer.Forget:
		n.forget(e.Leg)
	case transfer.ArmTimer:
		n.arm(e.At)
	case transfer.Rouse, transfer.Log:
	default:
		panic(fmt.Sprintf("sim: unknown effect %T", e))
	}
}

func (n *Node) arm(at transfer.Time) {
	n.timer++
	this := n.timer
	n.later(max(at-n.c.now, 0), func() {
		if n.timer == this {
			n.step(transfer.Tick{})
		}
	})
}

// session finds a session that the machine speaks of, which must not be one that was drained.
func (n *Node) session(id transfer.SessionID) *Session {
	s := n.sessions[id]
	if s == nil {
		n.c.fail("node %s: the machine speaks of session %d, which was drained", n.name, id)
		return &Session{node: n}
	}
	return s
}

// stop ends the daemon in good order: it begins nothing more, does not answer what it leaves to the next one, and
// goes soon.
func (n *Node) stop() {
	n.stopping = true
	n.drain(transfer.Drain{Stop: true}, n.c.bound())
}

// drain tells the daemon to drain. It goes within that time.
func (n *Node) drain(how transfer.Drain, within transfer.Time) {
	r := n.c.rng
	n.draining = true
	n.step(how)
	for _, p := range n.c.pipes { // applications end with their node's service
		if r := &n.c.rng; p.home.eng.node == n && r.hit(50) {
			n.later(r.span(0, within/2), p.home.leave)
		}
	}
	n.later(r.span(0, within), func() {
		if how.Stop {
			n.end()
		}
		n.later(n.c.rng.span(0, 50*ms), func() { n.crash(r.span(10*ms, 300*ms)) })
	})
}

// end is the last of a daemon that ends in good order: it closes its channels, and is gone soon.
func (n *Node) end() {
	n.ending = true
	n.step(transfer.Ending{})
	for _, o := range n.c.nodes {
		n.c.net.sever(ends(n.name, o.name))
		if epoch := n.views[o.name]; epoch != 0 {
			n.c.net.leave(n, o.name, epoch)
		}
	}
}

// crash kills the daemon: nothing of it moves any more. Clients notice, and connect again after it is back.
func (n *Node) crash(down transfer.Time) {
	c := n.c
	c.tracef("%s CRASH for %dms", n.name, down/ms)
	n.up = false
	n.life++
	loyal := map[*Engine]bool{}
	for _, e := range n.engines {
		loyal[e] = n.loyal(e)
	}
	n.away = slices.DeleteFunc(n.away, func(s *Session) bool { return !s.open || !s.away })
	for _, s := range sortedSessions(n.sessions) {
		switch {
		case s.open && loyal[s.eng] && !s.entered && c.opts.Ragged: // no daemon has heard of it
			s.away, s.id = true, 0
			c.after(down, s.come)
		case s.open && loyal[s.eng]:
			s.lose()
			n.away = append(n.away, s)
			s.napAlone(down)
		default:
			s.daemonGone()
		}
	}
	for _, o := range c.ops { // also those whose asker is gone
		if loyal[o.sess.eng] && o.sess.node == n && !o.sess.open {
			o.releaseAll()
			o.vanish()
		}
	}
	for _, e := range n.engines {
		for _, s := range e.all() { // also those that were not back yet
			switch {
			case loyal[e]:
			case s.node == n:
				s.daemonGone()
			default:
				s.kill("killed with its engine")
			}
		}
		e.down = e.down || e.spans() && !loyal[e]
		if loyal[e] {
			e.suffer(n, down)
		}
	}
	left := n.roster.File()
	if c.fixed {
		left = nil
	}
	n.legs = map[transfer.Leg]*leg{}
	c.net.nodeGone(n)
	c.after(down, func() {
		c.tracef("%s START", n.name)
		n.start(left)
		if n.await > 0 {
			n.step(n.awaited())
			return
		}
		n.awaits()
		for _, e := range n.engines {
			if loyal[e] {
				e.comeBack(n)
			} else {
				e.start()
			}
		}
		n.comeBack()
	})
}

// awaited is what the state file of a script's daemon would say.
func (n *Node) awaited() transfer.Awaited {
	ev := transfer.Awaited{For: n.await}
	for _, e := range n.engines {
		for _, s := range e.all() {
			if s.node == n {
				o := s.opened()
				ev.Sessions = append(ev.Sessions, transfer.AwaitedSession{
					Engine: o.Engine, Instance: o.Instance, Owner: o.Owner, Role: o.Role, Rank: o.Rank, Layout: o.Role == transfer.Worker,
				})
			}
		}
	}
	return ev
}
