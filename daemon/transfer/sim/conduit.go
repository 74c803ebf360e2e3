package sim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// conduit is a pipe or a lookup buffer: its home and its receiving ends.
type conduit struct {
	c      *Cluster
	name   string
	buffer bool
	token  []byte
	home   *sender
	ends   []*receiver
	drains bool  // end of the run: its items are received, then everything is closed
	here   bool  // all ends are on the home's node
	word   *word // how its last home ended, which nobody had met; nil: somebody had, or has heard of it since
	upset  int   // how often a receiving end came or went; what it got last may never have been reported
}

// thing is an item. Its bytes are the pattern of a request of that number.
type thing struct {
	id        uint64
	home      *sender
	life      int // which of the home's binds put it
	number    uint64
	tokens    int // its bytes, each of which is a token here and takes a cell per layer and head
	under     []uint32
	key       string
	put       *Op
	upset     int // the conduit's, when it was put
	got       int // how often it was received
	gotBy     *Node
	gotLife   int
	gotAt     transfer.Time
	gotOver   uint64 // epoch of the channel to its home then
	gotFor    *Op    // the bind of the end that received it
	elsewhere bool   // since then it was handed to an end on another node
	replaced  bool
	withdrawn bool
}

// sender is the end at the home: the pipe's sender, or the lookup buffer's owner.
type sender struct {
	*conduit
	eng   *Engine
	bind  *Op
	life  int // binds so far
	next  uint64
	last  map[string]*thing // by key
	began transfer.Time     // when it was opened
	terms map[int]*term     // by life
}

// addEnds makes pipes and lookup buffers between nodes and within them.
func (c *Cluster) addEnds() {
	r := &c.rng
	for i := range r.in(1, 4) {
		p := &conduit{c: c, name: fmt.Sprintf("p%d", i), buffer: r.hit(50)}
		if r.hit(50) {
			p.token = fmt.Appendf(nil, "token-of-pipe-%04d", i)
		}
		c.pipes = append(c.pipes, p)
		p.home = &sender{conduit: p, last: map[string]*thing{}, terms: map[int]*term{}}
		p.home.eng = c.endpoint(pick(r, c.nodes), "s"+p.name, p.home.open)
		p.here = c.opts.Ragged && r.hit(40)
		ends := r.in(1, 3)
		if c.cut > briefly && r.hit(70) {
			ends = 1
		}
		for k := range ends {
			e := &receiver{conduit: p, window: r.in(1, 4)}
			n := p.home.eng.node
			if !p.here {
				n = pick(r, c.nodes)
			}
			e.eng = c.endpoint(n, fmt.Sprintf("r%d%s", k, p.name), e.open)
			p.ends = append(p.ends, e)
		}
	}
	for _, n := range c.nodes {
		n.before = r.hit(20)
	}
}

// endpoint adds a client that has an end. It binds the end whenever it has a session.
func (c *Cluster) endpoint(n *Node, name string, open func()) *Engine {
	e := &Engine{c: c, node: n, name: name, shape: shape{blockSize: pick(&c.rng, []int{2, 4}), model: "bytes"}, down: true}
	e.endpoint = func() { c.after(c.rng.span(0, 300*ms), open) }
	n.engines = append(n.engines, e)
	return e
}

func (p *conduit) begin() {
	p.home.eng.start()
	for _, e := range p.ends {
		e.eng.start()
	}
	if p.c.faults.client > 0 {
		p.c.after(p.c.faults.trouble, p.trouble)
	}
}

// trouble now and then kills, closes or seals an end.
func (p *conduit) trouble() {
	c, r := p.c, &p.c.rng
	if c.calm {
		return
	}
	eng, bind := p.home.eng, p.home.bind
	var of *receiver
	if r.hit(60) {
		of = pick(r, p.ends)
		eng, bind = of.eng, of.bind
	}
	switch {
	case !eng.ready():
	case r.hit(c.faults.client):
		eng.crash(r)
	case r.hit(30) && running(bind):
		bind.closing = true
		p.small(eng, &transfer.CancelOp{Target: bind.user})
	case r.hit(30) && of == nil && running(bind):
		p.home.seal()
	}
	c.after(r.span(c.faults.trouble/2, c.faults.trouble*2), p.trouble)
}

// finish has the remaining items received, or just closes everything.
func (p *conduit) finish() {
	h := p.home
	if !running(h.bind) || p.exposed() || p.c.rng.hit(30) {
		p.stop()
		return
	}
	p.drains = true
	h.seal().onEnd = func(e transfer.Complete) {
		if e.Status == transfer.Failed { // an item was refused
			p.stop()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.c.items)) { // the same order in each run of a seed
		t := p.c.items[id]
		if t.home == h && t.key != "" && running(t.put) { // items under a key stay when they are received
			p.small(h.eng, &transfer.CancelOp{Target: t.put.user})
		}
	}
	for _, b := range p.binds()[1:] {
		p.close(b)
	}
	p.ends[0].open()
	p.c.after(150*second, func() { p.finished(!p.crowdedOut()) })
}

// finished looks whether everything was received. Unless that is the last time, it is looked at once more later.
func (p *conduit) finished(last bool) {
	switch {
	case !running(p.home.bind): // its sender died, and the items with it
	case p.ends[0].late(): // may take longer
	case !last:
		p.c.after(60*second, func() { p.finished(true) })
		return
	default:
		p.fail("%s was sealed, and items are left in it", p.name)
	}
	p.stop()
}

// crowdedOut says whether others have all the places that the end's node has for its ends at the home's node, and one
// of them collects late. It has its place until it is closed; it is closed when its own time is over.
func (p *conduit) crowdedOut() bool {
	home, at := p.home.eng.node, p.ends[0].eng.node
	full := slices.ContainsFunc(home.m.PeerUses(), func(u transfer.PeerUse) bool {
		return u.Node == at.name && home.cfg.MaxEnds > 0 && u.Ends >= home.cfg.MaxEnds
	})
	return full && slices.ContainsFunc(p.c.pipes, func(q *conduit) bool {
		e := q.ends[0]
		return q != p && q.home.eng.node == home && e.eng.node == at && running(e.bind) && e.late()
	})
}

// late says whether the end's client collects completions late.
func (e *receiver) late() bool {
	w := e.eng.workers
	return len(w) > 0 && w[0].lazy
}

func (p *conduit) close(b *Op) {
	if running(b) && b.sess.open {
		p.small(b.sess.eng, &transfer.CancelOp{Target: b.user})
	}
}

// stop closes all ends.
func (p *conduit) stop() {
	p.drains = false
	for _, b := range append([]*Op{p.home.bind}, p.binds()...) {
		p.close(b)
	}
}

func (p *conduit) binds() (all []*Op) {
	for _, e := range p.ends {
		all = append(all, e.bind)
	}
	return all
}

func running(o *Op) bool { return o != nil && o.sess.open && o.ends[o.sess] == nil }

// small submits a cancel or a seal.
func (p *conduit) small(e *Engine, in transfer.Op) *Op {
	o := p.newOp("small", e.workers[0])
	o.arrive(in)
	return o
}

// arrive hands an operation to the daemon, after all earlier ones of the end.
func (o *Op) arrive(in transfer.Op) {
	s, c := o.sess, o.c
	s.lastAt = max(s.lastAt, c.now+c.delay())
	s.node.later(s.lastAt-c.now, func() {
		if !s.open {
			return
		}
		o.given = true
		if o.timeout > 0 {
			o.limit = c.now + o.timeout + c.bound()
		}
		s.node.step(transfer.Submit{Session: s.id, UserData: o.user, Tag: o.tag, Op: given(in)})
	})
}

// arrived does something once what was handed over last has arrived.
func (o *Op) arrived(do func()) {
	s := o.sess
	s.node.later(s.lastAt-o.c.now, func() {
		if s.open {
			do()
		}
	})
}

// open makes this end the home.
func (h *sender) open() {
	c, r := h.c, &h.c.rng
	if c.calm || !h.eng.ready() || running(h.bind) {
		return
	}
	o := h.newOp("bind", h.eng.workers[0])
	h.bind, h.next, h.last = o, 0, map[string]*thing{}
	h.life++
	h.terms[h.life] = &term{sealed: -1}
	kind := transfer.BindSend
	if h.buffer {
		kind = transfer.BindOwn
	}
	shy, pause := c.opts.Ragged && r.hit(20) || h.here && r.hit(60), 300*ms
	if shy {
		pause = 2 * second
	}
	alone := h.alone()
	h.began = c.now
	o.onEnd = func(e transfer.Complete) {
		unopened := e.Reason == transfer.Quota || e.Reason == transfer.Busy || e.Reason == transfer.Unavailable
		if h.drains && !o.closing && e.Status != transfer.Done && !unopened {
			h.fail("op %d: %s was sealed, and ended %d %s", o.tag, h.name, e.Status, e.Text)
		}
		if h.drains {
			c.after(0, h.stop)
		}
		if alone && e.Status == transfer.Done {
			h.leaveWord()
		}
		c.after(r.span(0, pause), h.open)
	}
	o.arrive(&transfer.BindOp{Kind: kind, Name: h.name, Token: h.token, Capacity: 1 << 20})
	o.arrived(func() { h.word = nil })
	if shy {
		h.hesitate(o)
	} else {
		h.puts(o)
	}
}

// hesitate puts nothing for a while. The end may be sealed before it does.
func (h *sender) hesitate(bind *Op) {
	c, r := h.c, &h.c.rng
	c.after(r.span(0, second), func() {
		if !c.calm && running(bind) && r.hit(50) {
			h.seal()
		} else {
			h.puts(bind)
		}
	})
}

// puts puts an item now and then, as long as the bind runs.
func (h *sender) puts(bind *Op) {
	c, r := h.c, &h.c.rng
	if c.calm || !running(bind) {
		return
	}
	h.put(bind)
	d := r.span(0, 200*ms)
	if r.hit(60) {
		d = r.span(0, 3*ms)
	}
	c.after(d, func() { h.puts(bind) })
}

func (h *sender) put(bind *Op) {
	c, r := h.c, &h.c.rng
	s, bs := bind.sess, h.eng.shape.blockSize
	t := &thing{home: h, life: h.life, upset: h.upset}
	if r.hit(75) {
		t.tokens = r.in(1, 12)
	}
	ids := s.alloc((t.tokens + bs - 1) / bs)
	if ids == nil && t.tokens > 0 {
		return
	}
	t.id = uint64(len(c.items)) + 1<<20
	c.items[t.id] = t
	in := &transfer.PutOp{Target: bind.user, Form: transfer.MatchNext, Bytes: uint64(t.tokens), Meta: binary.LittleEndian.AppendUint64(nil, t.id)}
	if h.buffer {
		switch in.Form = transfer.MatchPrefix; {
		case r.hit(15):
			in.Form = transfer.MatchAny
		case r.hit(20):
			t.key = fmt.Sprintf("k%d", r.n(2))
			in.Form, in.Key = transfer.MatchKey, []byte(t.key)
			if old := h.last[t.key]; old != nil {
				old.replaced = true
			}
			h.last[t.key] = t
		default:
			t.under = someTokens(r)
			in.Tokens = t.under
		}
	}
	o := h.newOp("put", s)
	t.put, o.item, o.ids = o, t, ids
	t.number = h.next
	h.next++
	term := h.terms[h.life]
	term.things = append(term.things, t)
	if t.tokens > 0 {
		b := list(bs, 0, t.tokens, ids)
		in.Blocks = append(in.Blocks, b)
		for _, id := range ids {
			s.src[id] = o
		}
		s.mem.write(int(t.id), 0, b, 0, layers)
	}
	o.onEnd = func(e transfer.Complete) {
		if e.Status == transfer.Failed && e.Reason != transfer.Closed && !h.buffer {
			h.refused(bind, term, t)
		}
		if e.Status == transfer.Done && t.got == 0 && h.upset == t.upset && !t.replaced {
			h.fail("op %d: item %x of %s is done, and nobody received it", o.tag, t.id, h.name)
		}
	}
	o.arrive(in)
	if r.hit(3) {
		c.after(r.span(0, 300*ms), func() {
			if running(o) {
				t.withdrawn = true
				h.small(h.eng, &transfer.CancelOp{Target: o.user})
			}
		})
	}
}

func someTokens(r *rng) []uint32 {
	t := make([]uint32, r.in(1, 4))
	for i := range t {
		t[i] = uint32(r.n(2))
	}
	return t
}
