package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// term is what the home's end did during one bind.
type term struct {
	things  []*thing // in the order in which they were put
	sealed  int      // how many there were when it was sealed; -1: it was not
	refused *thing   // the first that was not accepted; nil: none
}

// seal tells the daemon that no more items follow. What the end puts after that is refused, and nobody misses it.
func (h *sender) seal() *Op {
	if t := h.terms[h.life]; t.sealed < 0 {
		t.sealed = len(t.things)
	}
	return h.small(h.eng, &transfer.SealOp{Target: h.bind.user})
}

// refused: an item of a pipe was not accepted. Its application hears of it at a later call, and then closes the end.
func (h *sender) refused(bind *Op, term *term, t *thing) {
	if term.refused == nil || t.number < term.refused.number {
		term.refused = t
	}
	h.c.after(h.c.rng.span(0, 300*ms), func() {
		if h.bind == bind {
			h.leave()
		}
	})
}

// leave closes the end as the library does: SEAL, and once that is answered the session ends. An item that was put
// just before still counts.
func (h *sender) leave() {
	c, bind := h.c, h.bind
	if h.drains || !running(bind) || !h.eng.ready() {
		return
	}
	if !c.calm {
		h.put(bind)
	}
	h.seal().onEnd = func(transfer.Complete) {
		if h.drains || !bind.sess.open {
			return
		}
		h.eng.down = true
		bind.sess.close("its end was closed")
		h.eng.node.later(c.rng.span(0, 600*ms), h.eng.start)
	}
}

// whole checks the items of a life when its receiver is told that it has them all.
func (h *sender) whole(o *Op, life int) {
	t := h.terms[life]
	if t.sealed < 0 {
		h.fail("op %d: %s is said to be closed by its sender, who did not in life %d", o.tag, h.name, life)
		return
	}
	if x := h.missing(t); x != nil {
		h.fail("op %d: %s is said to be closed by its sender, and item %d of life %d was received by nobody", o.tag, h.name, x.number, life)
	}
}

// missing returns an item of a sealed life that nobody has received, and should have; nil: there is none.
func (h *sender) missing(t *term) *thing {
	for _, x := range t.things[:t.sealed] {
		failed := x.put.ends[x.put.sess] != nil && x.put.ends[x.put.sess].status == transfer.Failed
		if x.got == 0 && !x.withdrawn && (failed || x.upset == h.upset) {
			return x
		}
	}
	return nil
}

// wasSealed checks that a life was sealed of which nothing is left, when a receiver that has nothing is told that there is no more.
func (h *sender) wasSealed(o *Op) {
	for _, t := range h.terms {
		if t.sealed >= 0 && h.missing(t) == nil {
			return
		}
	}
	h.fail("op %d: %s is said to be closed by its sender with nothing left in it, who did that in no life", o.tag, h.name)
}
