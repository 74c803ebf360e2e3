package sim

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// receiver is a receiving end.
type receiver struct {
	*conduit
	eng     *Engine
	bind    *Op
	window  int
	next    uint64            // the next number to ask for
	came    map[uint64]*thing // of this bind, by the number that was asked for
	gets    int               // of this bind, under way
	closed  uint64            // of this bind: the first number for which its pipe was said to be closed; open: none
	givenUp bool              // this bind lacks numbers that it will not get
	began   transfer.Time     // when it was opened
	due     bool              // this bind has to hear that its pipe was closed with nothing in it
}

const open = ^uint64(0)

func (e *receiver) open() {
	c, r := e.c, &e.c.rng
	if c.calm && !e.drainsHere() || !e.eng.ready() || running(e.bind) {
		return
	}
	if e.here && !e.drains && r.hit(60) { // the sender may come and go before
		c.after(r.span(0, 2*second), e.open)
		return
	}
	e.upset++ // the end before may not have been told what it was given
	o := e.newOp("bind", e.eng.workers[0])
	e.bind, e.next, e.came, e.gets, e.closed, e.givenUp, e.began, e.due = o, 0, map[uint64]*thing{}, 0, open, false, c.now, false
	in := &transfer.BindOp{Kind: transfer.BindRecv, Name: e.name, Token: e.token}
	if c.opts.Ragged && !e.drains && !e.exposed() && r.hit(8) {
		in.Token, o.wrong = wrongToken, "its token is not that of "+e.name
	}
	if e.buffer {
		in.Kind = transfer.BindSelect
	}
	if home := e.home.eng.node.name; home != e.eng.node.name || r.hit(30) {
		in.Peer = home
	}
	o.onEnd = func(x transfer.Complete) {
		e.upset++
		e.denied(o, x)
		c.after(r.span(0, 300*ms), e.open)
	}
	o.arrive(in)
	o.arrived(func() { e.hears(o) })
	for range e.window {
		e.get(o, e.next, nil)
		e.next++
	}
}

// drainsHere: at the end of the run one end receives what is left.
func (e *receiver) drainsHere() bool { return e.drains && e == e.ends[0] }

// again closes the end, which is then bound anew. While the end drains, gets that run may finish first, or the last
// item might never have the time.
func (e *receiver) again(bind *Op) {
	if running(bind) && !(e.drains && e.bind == bind && e.gets > 0) {
		e.small(e.eng, &transfer.CancelOp{Target: bind.user})
	}
}

// get asks for an item: of a pipe by number, of a lookup buffer by query. short is an item for which an earlier get
// had no room; nil: none.
func (e *receiver) get(bind *Op, seq uint64, short *transfer.Got) {
	c, r := e.c, &e.c.rng
	if c.calm && !e.drainsHere() || !running(bind) {
		return
	}
	s, bs := bind.sess, e.eng.shape.blockSize
	room := r.in(0, 12)
	if r.hit(50) {
		room = 12
	}
	in := &transfer.GetOp{Target: bind.user, Match: transfer.MatchNext, Seq: seq, Timeout: r.span(50*ms, 4*second)}
	switch {
	case short != nil && r.hit(30):
		in.Match, in.Seq, room = transfer.MatchDecline, short.Item, 0
	case short != nil && r.hit(80) || short != nil && e.buffer:
		in.Match, in.Seq, room = transfer.MatchItem, short.Item, int(min(short.Bytes, 12)) // only a mad node says more
	case !e.buffer:
	case r.hit(20) || e.drains:
		in.Match, in.Seq = transfer.MatchAny, 0
	case r.hit(20):
		in.Match, in.Seq, in.Key = transfer.MatchKey, 0, []byte{'k', byte('0' + r.n(2))}
	default:
		in.Match, in.Seq, in.Tokens = pick(r, []transfer.Match{transfer.MatchPrefix, transfer.MatchExact}), 0, someTokens(r)
	}
	ids := s.alloc((room + bs - 1) / bs)
	if room > 0 && ids == nil {
		c.after(r.span(10*ms, 100*ms), func() { e.get(bind, seq, short) })
		return
	}
	o := e.newOp("get", s)
	o.ids, o.timeout, o.wrong = ids, in.Timeout, bind.wrong
	if in.Room = uint64(room); room > 0 {
		o.lists = append(o.lists, list(bs, 0, room, ids))
		in.Blocks = o.lists
		for _, id := range ids {
			s.dst[id] = o
		}
	}
	e.gets++
	o.onEnd = func(x transfer.Complete) {
		if e.bind == bind {
			e.gets--
		}
		if in.Match == transfer.MatchItem && x.Status == transfer.Done && (x.Got.Matched != short.Matched || !bytes.Equal(x.Got.Meta, short.Meta)) {
			e.wrong("op %d: what an earlier get had no room for, %+v, came as %+v", o.tag, short, x.Got)
		}
		e.ended(bind, o, in, seq, x)
	}
	o.arrive(in)
	if r.hit(10) && !e.drains {
		c.after(r.span(0, 300*ms), func() {
			if running(o) {
				e.small(e.eng, &transfer.CancelOp{Target: o.user})
			}
		})
	}
}

// ended decides what to do after a get.
func (e *receiver) ended(bind, o *Op, in *transfer.GetOp, seq uint64, x transfer.Complete) {
	c, r := e.c, &e.c.rng
	asked := func() { e.get(bind, seq, nil) }
	e.denied(o, x)
	e.heard(bind, o, x)
	switch {
	case x.Reason == transfer.Denied:
		e.giveUp(bind)
	case x.Status == transfer.Done && in.Match == transfer.MatchDecline:
		c.after(r.span(0, 20*ms), asked)
	case x.Status == transfer.Done && x.Short:
		if x.Got.Bytes <= in.Room || x.Bytes != 0 {
			e.wrong("op %d: short of %d, with room for %d, %d moved", o.tag, x.Got.Bytes, in.Room, x.Bytes)
		}
		c.after(r.span(0, 100*ms), func() { e.get(bind, seq, x.Got) })
	case x.Status == transfer.Done:
		e.got(bind, o, in, seq, x)
		if e.atEnd(bind, o) {
			return
		}
		next := e.next
		e.next++
		c.after(r.span(0, 50*ms), func() { e.get(bind, next, nil) })
	case x.Reason == transfer.Quota: // it collects slowly
		c.after(r.span(100*ms, 900*ms), asked)
	case x.Reason == transfer.Closed && e.bind == bind && strings.Contains(x.Text, "closed by its sender") && !e.buffer:
		e.closed = min(e.closed, seq)
		if !e.atEnd(bind, o) && (e.givenUp || r.hit(30)) { // otherwise the items before the end are waited for
			e.giveUp(bind)
		}
	case e.patient(x):
		c.after(r.span(0, 50*ms), asked)
	case x.Reason == transfer.Closed || x.Reason == transfer.PeerGone || x.Reason == transfer.Restarted || x.Reason == transfer.Busy || !e.drains && r.hit(5):
		e.giveUp(bind)
	case x.Reason == transfer.Invalid && !e.buffer:
		e.missed(o, seq)
		e.giveUp(bind)
	default:
		c.after(r.span(0, 50*ms), asked)
	}
}

// atEnd says whether everything before the pipe's end has come. The receiver is then told that there is no more.
func (e *receiver) atEnd(bind, o *Op) bool {
	if e.bind != bind || e.closed == open || uint64(len(e.came)) < e.closed {
		return false
	}
	if t := e.came[0]; t != nil {
		e.home.whole(o, t.life)
	} else {
		e.home.wasSealed(o)
	}
	e.giveUp(bind)
	return true
}

func (e *receiver) giveUp(bind *Op) {
	if e.bind == bind {
		e.givenUp = true
	}
	e.c.after(e.c.rng.span(0, 100*ms), func() { e.again(bind) })
}

// missed: a number is not there. That is right only if its sender withdrew an item, or an end on another node
// received one while this end was cut off.
func (e *receiver) missed(o *Op, seq uint64) {
	for _, t := range e.c.items {
		if t.home == e.home && (t.withdrawn || t.got > 0 && t.gotBy != e.eng.node) {
			return
		}
	}
	e.fail("op %d: item %d of %s is gone, and none was withdrawn or received elsewhere", o.tag, seq, e.name)
}

// inOrder checks that what came under a higher number was put later.
func (e *receiver) inOrder(o *Op, seq uint64, t *thing) {
	for s, was := range e.came {
		if was.life != t.life || (s < seq) != (was.number < t.number) || s == seq {
			e.wrong("op %d: get %d of %s got item %d of life %d, get %d item %d of life %d", o.tag, seq, e.name, t.number, t.life, s, was.number, was.life)
			return
		}
	}
	e.came[seq] = t
	if gap := e.home.terms[t.life].refused; gap != nil && gap.number < t.number {
		e.wrong("op %d: get %d of %s got item %d of life %d, and item %d was refused", o.tag, seq, e.name, t.number, t.life, gap.number)
	}
}

// got checks what was received.
func (e *receiver) got(bind, o *Op, in *transfer.GetOp, seq uint64, x transfer.Complete) {
	c := e.c
	c.received++
	if e.madeUp() {
		return
	}
	if x.Got == nil || len(x.Got.Meta) != 8 {
		e.wrong("op %d: a get is done without a description: %+v", o.tag, x)
		return
	}
	t := c.items[binary.LittleEndian.Uint64(x.Got.Meta)]
	switch {
	case t == nil || t.home.conduit != e.conduit:
		e.wrong("op %d: got what nobody put into %s", o.tag, e.name)
		return
	case x.Got.Bytes != uint64(t.tokens) || (x.Bytes == 0) != (t.tokens == 0):
		e.wrong("op %d: item %x of %d tokens came as %d, %d bytes", o.tag, t.id, t.tokens, x.Got.Bytes, x.Bytes)
	case !e.buffer:
		e.inOrder(o, seq, t)
	case in.Match == transfer.MatchItem:
	case !fits(in, t):
		e.wrong("op %d: query %d %v %q got entry %v %q", o.tag, in.Match, in.Tokens, in.Key, t.under, t.key)
	case in.Match == transfer.MatchPrefix && x.Got.Matched != uint64(min(len(in.Tokens), len(t.under))):
		e.wrong("op %d: query %v of entry %v matched %d tokens", o.tag, in.Tokens, t.under, x.Got.Matched)
	}
	// An item comes only once, unless the daemon that received it died, and with it what it had received.
	n := e.eng.node
	if t.got > 0 && t.key == "" && t.gotBy.life == t.gotLife {
		if !e.despite(bind, t) {
			e.fail("op %d: item %x of %s was received twice", o.tag, t.id, e.name)
		}
		c.despite++
	}
	t.got++
	t.gotBy, t.gotLife, t.gotFor, t.elsewhere = n, n.life, bind, false
	t.gotAt, t.gotOver = c.now, n.views[e.home.eng.node.name]
	if t.tokens > 0 {
		o.req = &Request{c: c, id: int(t.id), key: e.name}
		all := o.lists
		o.lists = slices.Clone(all)
		o.lists[0] = list(e.eng.shape.blockSize, 0, t.tokens, o.ids)
		o.checkBytes(0, layers, nil)
		o.lists = all
	}
}

// despite says whether an item may come once more after an outage. While the node that received it was away for long,
// another end may get it. Once that node is back it says what it received, for an end that is still open. But if
// another end was handed the item meanwhile and does not receive it, the item goes back, and the first end may get it
// again. For an end that is closed, its node says so for three Lingers in all, which several short outages can use up.
func (e *receiver) despite(bind *Op, t *thing) bool {
	home := e.home.eng.node.name
	if !running(t.gotFor) && e.c.now-t.gotAt > 3*e.c.cfg.Linger && t.gotBy.views[home] != t.gotOver {
		return true
	}
	until := e.c.net.outlasts(home, t.gotBy.name)
	return until > 0 && (t.gotFor != bind || t.elsewhere) && (!running(t.gotFor) || e.c.now-until < 8*second)
}

func fits(in *transfer.GetOp, t *thing) bool {
	begins := func(a, b []uint32) bool { return len(a) >= len(b) && slices.Equal(a[:len(b)], b) }
	switch in.Match {
	case transfer.MatchAny:
		return t.key == ""
	case transfer.MatchKey:
		return t.key == string(in.Key)
	case transfer.MatchExact:
		return len(t.under) > 0 && slices.Equal(in.Tokens, t.under)
	}
	return len(t.under) > 0 && (begins(in.Tokens, t.under) || begins(t.under, in.Tokens))
}
