package sim

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// Before the machine hears of a session, daemon/session has judged the client by the roster. Here the same roster is
// asked. A daemon leaves the next one its roster as it was when it went: what it had told clients by then.

// patience is how long a daemon awaits the sessions of the daemon before.
const patience = 2 * second

// Lapse is a mistake that daemons make about who comes to them, or about a configuration that they read again.
type Lapse int

const (
	Older     Lapse = iota + 1 // replaced instances are let in
	Left                       // ranks that have left are forgotten
	Changes                    // it is forgotten that a rank was replaced
	Pretender                  // a process that replaced a rank is taken for the one before
	Squatter                   // a process that stood still gets its place, though the one that replaced it is awaited
	Fresh                      // what was submitted without a daemon is taken to be about the ranks that are there when it is sent
	Behind                     // what was written before a rank was replaced, and is read after, is taken to be about the new process
	Reread                     // reading the configuration again changes what needs a restart
)

var (
	errBusy  = errors.New("the rank has a session already")
	noSecret = strings.Repeat("0", 64) // the zero Proof in hex
)

// Submitted implements roster.Client.
func (s *Session) Submitted() bool { return s.asked || len(s.ring) > 0 }

func (s *Session) engine() roster.Engine { return roster.Engine{Name: s.eng.name, Owner: owner} }

const owner = "uid 1"

// opened is what the client says of itself.
func (s *Session) opened() transfer.SessionOpened {
	ev := transfer.SessionOpened{
		Session: s.id, Engine: s.eng.name, Instance: fmt.Sprintf("i%d", s.instance), Owner: owner, Role: s.role,
		Rank: uint32(s.rank), TPWorld: uint32(s.eng.shape.ranks()), PPWorld: 1, Credits: s.credits,
	}
	if s.role == transfer.Scheduler {
		ev.Rank = transfer.NoRank
	}
	return ev
}

// admit judges a client. was is the session that it had before; 0: none. It returns what the machine is told.
func (n *Node) admit(s *Session, was transfer.SessionID) (transfer.SessionOpened, error) {
	ev := s.opened()
	if s.role == transfer.Endpoint {
		return ev, nil
	}
	_, mates, err := n.lives.Judge(s.engine(), ev.Instance, was != 0)
	if err != nil && n.c.opts.Lapse != Older {
		return ev, err
	}
	for o := range mates {
		if o.role == transfer.Worker && s.role == transfer.Worker && o.rank == s.rank && !n.c.fixed {
			return ev, errBusy
		}
	}
	entry := roster.Session{ID: ev.Session, Engine: ev.Engine, Instance: ev.Instance, Owner: ev.Owner, Role: ev.Role, Rank: ev.Rank, Secret: noSecret}
	if n.roster.Kept(&entry, roster.Return{ID: was}) && n.c.opts.Lapse != Squatter {
		return ev, errBusy
	}
	n.lives.Join(s.engine(), ev.Instance, s, was != 0)
	k := n.roster.Put(entry, s, roster.Return{ID: was}, n.lives.Past(s.engine()))
	n.roster.Another(&entry, k) // nobody submits anything before the machine hears of it

	ev.Had, ev.Resumed, ev.Changed = k.Had, k.Resumed || n.await > 0, k.Changed // in scripts, whoever comes back was awaited
	switch n.c.opts.Lapse {
	case Left:
		ev.Had = nil
	case Changes:
		ev.Changed = false
	case Pretender:
		ev.Resumed = ev.Resumed || n.life > 1
	}
	return ev, nil
}

// enter opens a new session.
func (s *Session) enter() {
	ev, err := s.node.admit(s, 0)
	if err != nil {
		s.over(err)
		return
	}
	s.begin(ev)
}

// begin tells the machine of a session, which now has its rank's place, and of its layout.
func (s *Session) begin(ev transfer.SessionOpened) {
	n := s.node
	s.succeeds()
	s.asked, s.tries, s.entered = false, 0, true
	if s.role == transfer.Worker && !ev.Resumed {
		s.outdates()
	}
	n.opening = s
	n.step(ev)
	n.opening = nil
	n.met[served{s.eng, s.instance}] = true
	if c := n.c; c.opts.Ragged && s.role == transfer.Worker && c.rng.hit(40) {
		s.bare = true
		n.later(c.rng.span(0, 200*ms), s.setLayout)
	} else if s.mem != nil {
		s.setLayout()
	}
}

// setLayout says how the session's memory is laid out. Nothing can be asked of it before.
func (s *Session) setLayout() {
	n := s.node
	if n.sessions[s.id] != s || !s.open {
		return
	}
	s.bare = false
	s.comesWithout()
	n.roster.HasLayout(s.id)
	n.step(transfer.LayoutSet{Session: s.id, Layout: s.mem.layout})
	s.nap()
	if s.resumes {
		s.resumes = false
		s.again()
	}
}

// gone is called when a session is over. again: its client lost only its connection, and comes back.
func (n *Node) gone(s *Session, again bool) {
	if s.role != transfer.Endpoint {
		n.roster.Leave(s.id, again)
		name := fmt.Sprintf("i%d", s.instance)
		n.lives.Leave(s.engine(), name, s, n.roster.Awaits(s.engine(), name))
		s.eng.forgotten(n, name)
	}
}

// awaits begins to wait for the sessions of the daemon before.
func (n *Node) awaits() {
	if len(n.roster.Away()) == 0 {
		return
	}
	n.step(n.roster.Awaited(patience))
	n.later(patience, func() {
		n.lives.GiveUp(n.roster.Away())
		n.roster.GiveUp()
	})
}

// visit opens a session, sets its layout if it has memory, and closes it.
func (n *Node) visit(s *Session, was transfer.SessionID, why transfer.Cause) {
	n.lastID++
	s.id = n.lastID
	ev, err := n.admit(s, was)
	if err != nil {
		return
	}
	n.sessions[s.id] = s
	n.step(ev)
	if s.mem != nil {
		n.step(transfer.LayoutSet{Session: s.id, Layout: s.mem.layout})
	}
	n.step(transfer.SessionClosed{Session: s.id, Cause: why})
	n.gone(s, why.Reason == transfer.PeerGone)
}
