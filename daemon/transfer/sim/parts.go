package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// Sessions that take for themselves take parts of one take: each in its own time, from its own daemon. A part that
// failed may be taken again alone, under the same take id. Sessions that disagree claim a part twice, or give
// different numbers of parts.

// parts returns in how many parts an engine takes.
func (e *Engine) parts() int { return len(e.askers()) }

// share has each of the engine's askers take its part.
func (q *Request) share(e *Engine, p takePlan) {
	c, r := q.c, &q.c.rng
	n := e.parts()
	for i, s := range e.askers() {
		parts := n
		if n > 1 && r.hit(3) {
			parts = max(n+r.in(-1, 1), i+1)
		}
		late := transfer.Time(0)
		if e.spans() && r.hit(50) {
			late = r.span(0, 500*ms)
		}
		c.after(late, func() { q.takePart(s, p, i, parts, 0) })
		if e.spans() && r.hit(10) {
			other := pick(r, e.askers())
			c.after(late+r.span(0, 300*ms), func() { q.takePart(other, p, i, n, 3) })
		}
	}
}

// takePart takes a part. again is how often it was taken before.
func (q *Request) takePart(s *Session, p takePlan, part, parts, again int) {
	if o := q.takeBy(s, p, part, parts); o != nil {
		q.mind(o, p, again)
	}
}

// takeAgain takes once more a part that came to nothing, perhaps by another session.
func (q *Request) takeAgain(o *Op, p takePlan, again int) {
	c, r, s := q.c, &q.c.rng, o.sess
	if r.hit(20) {
		s = pick(r, s.eng.askers())
	}
	c.after(r.span(0, 300*ms), func() { q.takePart(s, p, o.part, s.eng.parts(), again) })
}
