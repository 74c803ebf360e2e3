package sim

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Engine is a serving engine: workers with memory, perhaps a scheduler.
type Engine struct {
	c        *Cluster
	node     *Node
	nodes    []*Node // that have its ranks; node is the first
	name     string
	shape    shape
	instance int
	since    transfer.Time // when this instance began
	sched    *Session
	workers  []*Session
	down     bool
	lazy     bool   // this instance's sessions collect completions late
	older    bool   // its library is one version older: what it sends again has no flag that says so
	endpoint func() // set for an end: binds it once the session is open
}

// Session is a client's connection.
type Session struct {
	node     *Node
	eng      *Engine
	id       transfer.SessionID
	role     transfer.Role
	rank     int
	instance int
	mem      *memory                // workers
	pool     *pool                  // the block ids that it submits from
	open     bool                   // the client lives and is connected, or waits for the next daemon
	away     bool                   // it waits for the next daemon
	late     transfer.Time          // how long it stands still once the next daemon is there; 0: not at all
	tries    int                    // how often it came back and was told to try again
	asked    bool                   // it has submitted something to this daemon
	heir     *Session               // the session that came in its place
	quiet    map[uint64]transfer.Op // extensions that the library sent again by itself
	drained  bool
	killed   bool          // its process died
	news     transfer.Time // how much later the daemon hears of its death
	entered  bool          // a daemon has heard of it
	bare     bool          // it has not set its layout yet
	resumes  bool          // once it has, it sends its operations again
	ousted   bool          // it was told to go, or its memory was taken away
	leaving  bool          // it was told to go, and is about to
	sleepy   bool          // its memory was asked back for a while
	invalid  bool          // its memory is away
	napped   bool          // its memory was away while there was no daemon
	orphan   bool          // its daemon was told which of its memory has to stay
	gone     transfer.Time // when the daemon heard that it is closed or dead
	disowned bool          // nothing outlived anybody then, for want of a lease
	progress uint64
	watch    uint64
	writes   []write
	ring     []*entry       // what it has submitted and the daemon has not read
	idle     transfer.Time  // the daemon does not read the ring before then
	src      map[uint32]*Op // block (place) -> offer that holds it
	dst      map[uint32]*Op // block (place) -> take that holds it
	byUser   map[uint64]*Op
	lastUser uint64
	credits  int
	lazy     bool          // has little room for completions, and collects them late
	hung     transfer.Time // it collects none before then
	lastAt   transfer.Time // when the last operation of an end arrives at the daemon
}

// write is what the model does when its progress reaches at.
type write struct {
	at uint64
	do func()
}

// AddEngine starts an engine on a node.
func (c *Cluster) AddEngine(n *Node, s shape) *Engine {
	return c.addEngine(n, fmt.Sprintf("e%d", len(c.engines)), s)
}

func (c *Cluster) addEngine(n *Node, name string, s shape, more ...*Node) *Engine {
	if c.slides > 0 {
		s.second = pick(&c.rng, []int{2, 4})
	}
	s.state = c.states > 0
	if c.opts.Ragged {
		s.fray(&c.rng)
	}
	e := &Engine{c: c, node: n, nodes: append([]*Node{n}, more...), name: name, shape: s}
	for _, n := range e.nodes {
		n.engines = append(n.engines, e)
	}
	c.engines = append(c.engines, e)
	e.start()
	return e
}

// start opens the sessions of a new instance, once all its nodes are up.
func (e *Engine) start() {
	if e.spans() && !e.gather() {
		return
	}
	e.begin()
}

// begin is start, even if processes of the instance before are left.
func (e *Engine) begin() {
	e.down = false
	e.instance++
	e.since = e.c.now
	e.workers, e.sched = nil, nil
	e.lazy, e.older = e.c.rng.hit(e.c.faults.lazy), !e.c.fixed && e.c.rng.hit(20)
	if e.endpoint != nil {
		e.workers = append(e.workers, e.newSession(transfer.Endpoint, 0))
		e.endpoint()
		return
	}
	for rank := range e.shape.ranks() {
		e.workers = append(e.workers, e.newSession(transfer.Worker, rank))
	}
	if e.shape.sched {
		e.sched = e.newSession(transfer.Scheduler, 0)
	}
}

func (e *Engine) newSession(role transfer.Role, rank int) *Session {
	n := e.at(role, rank)
	s := &Session{
		node: n, eng: e, role: role, rank: rank, instance: e.instance, open: true, pool: newPool(),
		src: map[uint32]*Op{}, dst: map[uint32]*Op{}, byUser: map[uint64]*Op{}, quiet: map[uint64]transfer.Op{}, credits: e.c.credits, lazy: e.lazy,
	}
	if e.lazy {
		s.credits = e.c.rng.in(4, 12)
	}
	if role != transfer.Scheduler {
		s.mem = newMemory(e.shape.of(rank), rank)
	}
	s.comes()
	if role == transfer.Worker {
		s.model()
	}
	return s
}

// all lists the engine's sessions.
func (e *Engine) all() []*Session {
	if e.sched != nil {
		return append([]*Session{e.sched}, e.workers...)
	}
	return e.workers
}

// askers are the sessions that submit: the scheduler for the ranks of its node, and each worker on a node without it.
func (e *Engine) askers() []*Session {
	if e.sched == nil {
		return e.workers
	}
	askers := []*Session{e.sched}
	for _, w := range e.workers {
		if w.node != e.sched.node {
			askers = append(askers, w)
		}
	}
	return askers
}

// ready is true while all sessions of the engine are connected.
func (e *Engine) ready() bool {
	if e.down || !e.node.up {
		return false
	}
	for _, s := range e.all() {
		if !s.open || s.away || s.bare {
			return false
		}
	}
	return true
}

// ranks are the sessions whose memory an operation of s names.
func (s *Session) ranks() []*Session {
	if s.role != transfer.Scheduler {
		return []*Session{s}
	}
	return slices.DeleteFunc(slices.Clone(s.eng.workers), func(w *Session) bool { return w.node != s.node })
}

// model lets the rank's steps go by: layers are written one after the other, then the next step begins.
func (s *Session) model() {
	if s.eng.c.fixed {
		return
	}
	c := s.eng.c
	c.after(c.rng.span(2*ms, 60*ms), func() {
		if !s.open {
			return
		}
		step, phase := s.progress>>16, s.progress&0xffff
		switch {
		case phase < uint64(len(s.mem.part.layers)):
			phase++
		case phase != 0xffff && c.rng.hit(50):
			phase = 0xffff
		default:
			step, phase = step+1, 0
		}
		s.setProgress(step<<16 | phase)
		s.model()
	})
}

// setProgress does the writes that are due by then, and then stores the word. The daemon looks at it if it was asked to.
func (s *Session) setProgress(v uint64) {
	rest := s.writes[:0]
	for _, w := range s.writes {
		if w.at <= v {
			w.do()
		} else {
			rest = append(rest, w)
		}
	}
	s.writes = rest
	s.lapses()
	s.progress = v
	s.look()
}

func (s *Session) watchProgress(v uint64) {
	s.watch = v
	s.look()
}

func (s *Session) look() {
	if s.watch != 0 && s.progress >= s.watch && s.open {
		s.node.event(s.eng.c.delay(), transfer.Progress{Session: s.id, Value: s.progress})
	}
}

// takesIn says whether the client submits operations. In unsettled seeds it also does so while there is no daemon,
// for the next one, unless another session has taken its place.
func (s *Session) takesIn() bool {
	return s.open && !s.absent() && !s.bare && (!s.away || s.eng.c.unsettled() && s.heir == nil && s.instance == s.eng.instance)
}

// outlived says whether the ranks of a scheduler are a newer instance's, because its node, which stands still, keeps it
// from hearing that it was replaced. It asks for nothing then: only it and the old ranks know what it would ask for.
func (s *Session) outlived() bool {
	return s.eng.c.opts.Ragged && slices.ContainsFunc(s.ranks(), func(w *Session) bool { return w.instance != s.instance })
}

// able is true while all sessions that submit can. Ranks may be missing, which their scheduler need not know.
func (e *Engine) able() bool {
	return !e.down && !slices.ContainsFunc(e.askers(), func(s *Session) bool { return !s.takesIn() })
}

// told: the machine ends the session.
func (s *Session) told(cause transfer.Cause) {
	// No daemon can know that an instance is older which it meets for the first time.
	if o := s.node.opening; o != nil && o.eng == s.eng && o.instance < s.instance && s.node.met[served{o.eng, o.instance}] {
		s.eng.c.fail("node %s: instance %d of %s, which came back, ended session %d of instance %d: %s", s.node.name, o.instance, s.eng.name, s.id, s.instance, cause.Text)
	}
	s.ousted, s.leaving = true, true
	s.node.later(s.eng.c.delay(), func() { s.close("told: " + cause.Text) })
}

// kill ends the client's process, close only its session. The daemon notices a little later.
func (s *Session) kill(why string) {
	s.killed = s.open || s.killed
	s.close(why)
}

func (s *Session) close(why string) {
	if !s.open {
		return
	}
	s.eng.c.tracef("%s session %d (%s rank %d) closes: %s", s.node.name, s.id, s.eng.name, s.rank, why)
	s.open = false
	if s.away { // its daemon is gone, and the next one does not know it yet
		s.drained = true
		s.vanish()
		return
	}
	s.node.later(s.eng.c.delay()+s.news, s.end)
}

// daemonGone: the library notices; nothing that was running can touch memory any more.
func (s *Session) daemonGone() {
	s.open, s.drained, s.ring = false, true, nil
}

func (n *Node) drained(id transfer.SessionID) {
	s := n.session(id)
	if s.open {
		n.c.fail("node %s: session %d drained while it is open", n.name, id)
	}
	s.drained = true
	s.checkReturned()
	delete(n.sessions, id)
}

// crash kills all processes of the engine, sometimes one of them first, and starts it again.
func (e *Engine) crash(r *rng) {
	if e.down {
		return
	}
	e.down = true
	all := e.all()
	if r.hit(40) {
		pick(r, all).kill("killed")
		e.later(r.span(1*ms, 200*ms), func() { e.killRest(all) })
	} else {
		e.killRest(all)
	}
	e.later(r.span(0, 600*ms), func() {
		e.killRest(all)
		e.start()
	})
}

func (e *Engine) killRest(all []*Session) {
	for _, s := range all {
		s.kill("killed with its engine")
	}
}

// list returns the block list of tokens first to stop. ids are the blocks of all tokens from 0 on.
func list(blockSize, first, stop int, ids []uint32) layout.BlockList {
	from, to := first/blockSize, (stop+blockSize-1)/blockSize
	if stop <= first {
		return layout.BlockList{FirstToken: uint32(first), IDs: nil}
	}
	return layout.BlockList{FirstToken: uint32(first), NTokens: uint32(stop - first), IDs: ids[from:to]}
}
