package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Commands of a script about pipes and lookup buffers. An end is an engine of one session. An item's name is its
// description, by which it is recognised when it is received.

func (s *Script) endCommands() map[string]func(args) {
	return map[string]func(args){
		"open":  s.open,
		"put":   s.put,
		"get":   s.get,
		"seal":  func(a args) { s.onBind(a, func(o *Op) transfer.Op { return &transfer.SealOp{Target: o.user} }) },
		"leave": func(a args) { s.onBind(a, func(o *Op) transfer.Op { return &transfer.CancelOp{Target: o.user} }) },
	}
}

// open END node=N name=NAME send|recv|own|select [peer=N] [token=T] [capacity=BYTES] [linger=MS]
func (s *Script) open(a args) {
	kinds := map[string]transfer.BindKind{"send": transfer.BindSend, "recv": transfer.BindRecv, "own": transfer.BindOwn, "select": transfer.BindSelect}
	in := &transfer.BindOp{Name: a.named["name"], Kind: kinds[a.words[1]], Peer: a.named["peer"], Token: []byte(a.named["token"]), Linger: a.ms("linger", 0)}
	if in.Kind == transfer.BindSend || in.Kind == transfer.BindOwn {
		in.Capacity = uint64(a.num("capacity", 1<<20))
	}
	e := s.end(a.words[0])
	if e == nil {
		e = &Engine{c: s.c, node: s.c.byName[a.named["node"]], name: a.words[0], shape: shape{blockSize: 4, model: "bytes"}, endpoint: func() {}}
		e.node.engines = append(e.node.engines, e)
		s.c.engines = append(s.c.engines, e)
	}
	if len(e.workers) == 0 || !e.workers[0].open {
		e.start()
		s.c.run(s.c.now)
	}
	o := s.c.newOp("bind", e.workers[0], nil)
	s.ops[e.name+" bind"] = o
	o.arrive(in)
}

func (s *Script) end(name string) *Engine {
	for _, e := range s.c.engines {
		if e.name == name {
			return e
		}
	}
	return nil
}

func (s *Script) onBind(a args, op func(*Op) transfer.Op) {
	o := s.ops[a.words[0]+" bind"]
	s.c.newOp("small", o.sess, nil).arrive(op(o))
}

// endForms are the words for how an item is put, or found.
var endForms = map[string]transfer.Match{
	"": transfer.MatchNext, "any": transfer.MatchAny, "prefix": transfer.MatchPrefix, "exact": transfer.MatchExact, "key": transfer.MatchKey,
	"item": transfer.MatchItem, "decline": transfer.MatchDecline,
}

func (a args) tokens() (all []uint32) {
	for w := range strings.SplitSeq(a.named["tokens"], ",") {
		if n, err := strconv.ParseUint(w, 10, 32); err == nil {
			all = append(all, uint32(n))
		}
	}
	return all
}

// put END WHAT [bytes=N] [form=any|prefix|key] [tokens=1,2,3] [under=KEY]; WHAT names it, in the description and for cancel
func (s *Script) put(a args) {
	bind, what := s.ops[a.words[0]+" bind"], a.words[1]
	x := bind.sess
	t := &thing{id: uint64(len(s.c.items)) + 1<<20, tokens: a.num("bytes", 0)}
	s.c.items[t.id], s.things[what] = t, t
	in := &transfer.PutOp{
		Target: bind.user, Form: endForms[a.named["form"]], Bytes: uint64(t.tokens), Meta: []byte(what),
		Tokens: a.tokens(), Key: []byte(a.named["under"]),
	}
	o := s.c.newOp("put", x, nil)
	s.ops[a.words[0]+" "+what] = o
	if t.tokens > 0 {
		bs := x.eng.shape.blockSize
		o.ids = x.alloc((t.tokens + bs - 1) / bs)
		b := list(bs, 0, t.tokens, o.ids)
		in.Blocks = append(in.Blocks, b)
		for _, id := range o.ids {
			x.src[id] = o
		}
		x.mem.write(int(t.id), 0, b, 0, layers)
	}
	o.arrive(in)
}

// get END WHAT [seq=N] [form=any|prefix|exact|key|item|decline] [tokens=1,2,3] [under=KEY] [room=N] [timeout=MS]; WHAT is a name for
// cancel, and for item and decline that of a get that was short
func (s *Script) get(a args) {
	bind, what := s.ops[a.words[0]+" bind"], a.words[1]
	x := bind.sess
	in := &transfer.GetOp{
		Target: bind.user, Match: endForms[a.named["form"]], Room: uint64(a.num("room", 0)), Seq: uint64(a.num("seq", 0)),
		Key: []byte(a.named["under"]), Tokens: a.tokens(), Timeout: a.ms("timeout", second),
	}
	if in.Match == transfer.MatchItem || in.Match == transfer.MatchDecline {
		in.Seq = s.short[a.words[0]+" "+what]
	}
	o := s.c.newOp("get", x, nil)
	o.timeout = in.Timeout
	s.ops[a.words[0]+" "+what] = o
	if in.Room > 0 {
		bs := x.eng.shape.blockSize
		o.ids = x.alloc((int(in.Room) + bs - 1) / bs)
		o.lists = append(o.lists, list(bs, 0, int(in.Room), o.ids))
		in.Blocks = o.lists
		for _, id := range o.ids {
			x.dst[id] = o
		}
	}
	o.onEnd = func(c transfer.Complete) {
		if c.Short {
			s.short[a.words[0]+" "+what] = c.Got.Item
		} else if c.Status == transfer.Done && c.Got != nil {
			s.got(o, c)
		}
	}
	o.arrive(in)
}

// got checks every byte of what was received.
func (s *Script) got(o *Op, c transfer.Complete) {
	t := s.things[string(c.Got.Meta)]
	if t == nil || c.Got.Bytes != uint64(t.tokens) {
		s.c.fail("op %d: got %q of %d bytes", o.tag, c.Got.Meta, c.Got.Bytes)
		return
	}
	if t.tokens == 0 {
		return
	}
	o.req = &Request{c: s.c, id: int(t.id)}
	all := o.lists
	o.lists = slices.Clone(all)
	o.lists[0] = list(o.sess.eng.shape.blockSize, 0, t.tokens, o.ids)
	o.checkBytes(0, layers, nil)
	o.lists = all
}
