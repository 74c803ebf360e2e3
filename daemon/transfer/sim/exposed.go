package sim

import "slices"

// What a mad node takes part in is checked less: about that it may say what it likes.

// madeUp says whether the bytes are a mad node's.
func (r *Request) madeUp() bool { return r.prod != nil && r.prod.node.mad != nil }

// exposed says whether a mad node has the request's token.
func (r *Request) exposed() bool { return r.shared || r.madeUp() }

// exposed says whether a mad node has one of the ends, and so the name and token.
func (p *conduit) exposed() bool {
	return p.home.eng.node.mad != nil || slices.ContainsFunc(p.ends, func(e *receiver) bool { return e.eng.node.mad != nil })
}

// madeUp says whether the end or its home is on a mad node, so that what the end is told of items may be made up.
func (e *receiver) madeUp() bool { return e.home.eng.node.mad != nil || e.eng.node.mad != nil }

// wrong reports that an end has a wrong item, unless a mad node may have changed it.
func (e *receiver) wrong(format string, args ...any) {
	if !e.madeUp() {
		e.c.fail(format, args...)
	}
}

// fail reports what became of items, unless a mad node is among those that count them.
func (p *conduit) fail(format string, args ...any) {
	if !p.exposed() {
		p.c.fail(format, args...)
	}
}

func (p *conduit) newOp(kind string, s *Session) *Op {
	o := p.c.newOp(kind, s, nil)
	o.pipe = p
	return o
}

func (o *Op) exposed() bool {
	return o.sess.node.mad != nil || o.req != nil && o.req.exposed() || o.pipe != nil && o.pipe.exposed()
}

func (o *Op) madeUp() bool {
	return o.sess.node.mad != nil || o.req != nil && o.req.madeUp() || o.pipe != nil && o.pipe.home.eng.node.mad != nil
}
