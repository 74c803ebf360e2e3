package transfer

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// keyOp is a watch or a drop that waits for the producer's answer.
type keyOp struct {
	op
	msg      MsgKey
	hint     string
	peer     *peer
	asked    bool
	until    Time
	deadline timer
	resend   timer
}

// keyTimeout is how long the answer may take if a watch or drop names no timeout.
const keyTimeout = 5 * Second

func (m *Machine) submitKey(s *session, sub *Submit, msg MsgKey, hint string, timeout Time) {
	k := &keyOp{msg: msg, hint: hint, until: m.now + m.keyWait(timeout)}
	if !msg.Drop {
		k.msg.For = m.clampTimeout(timeout) // one timeout for both: how long the interest lasts, and how long the answer may take
	}
	if cause := m.begin(&k.op, sub, s, nil, creditsKey, k); cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	k.msg.ID, k.msg.Engine = uint64(k.id), s.engine.key.name
	m.keyOps[k.msg.ID] = k
	m.traceOp(&k.op, msg.Key, msg.Trace, hint, 0)
	m.arm(&k.deadline, k, wakeDeadline, k.until)
	m.reach(hint, k)
}

// keyWait is how long the answer may take.
func (m *Machine) keyWait(timeout Time) Time {
	if timeout <= 0 {
		return keyTimeout
	}
	return m.clampTimeout(timeout)
}

func (k *keyOp) arrive(m *Machine, p *peer) {
	if m.keyOps[k.msg.ID] != k {
		return // it ended while others that waited for the channel were sent on
	}
	k.peer, k.asked = p, true
	k.ask(m)
}

func (k *keyOp) ask(m *Machine) {
	msg := k.msg
	m.send(k.peer, &msg)
	m.arm(&k.resend, k, wakeResend, m.now+m.cfg.Resend) // within this node too: see watchEarly
}

func (k *keyOp) stranded(m *Machine, cause Cause) { k.finish(m, Failed, cause) }

func (k *keyOp) answered(m *Machine, cause Cause) {
	if cause.Reason != OK {
		k.finish(m, Failed, cause)
		return
	}
	k.finish(m, Done, Cause{})
}

func (k *keyOp) finish(m *Machine, status Status, cause Cause) {
	m.disarm(&k.deadline)
	m.disarm(&k.resend)
	m.forgo(k.hint, k)
	delete(m.keyOps, k.msg.ID)
	m.conclude(&k.op, status, cause)
}

func (k *keyOp) fire(m *Machine, which wake) {
	switch which {
	case wakeResend:
		if k.asked {
			k.ask(m)
		}
	case wakeDeadline:
		k.finish(m, Failed, k.tooLate(m))
	}
}

func (k *keyOp) tooLate(m *Machine) Cause {
	key, limit := short(k.msg.Key), duration(m.now-k.began)
	if k.asked && k.peer == nil {
		return because(Timeout, "nothing was offered under key %s on node %q, this one, within %s", key, m.cfg.Node, limit)
	}
	c := m.trouble(k.hint)
	if !k.asked && c.Reason != OK {
		return notReached(k.hint, limit, c)
	}
	if c.Reason == OK {
		c.Text = "no answer"
		if k.asked && !k.msg.Drop {
			c.Text = "nothing was offered under it"
		}
	}
	about := " about key " + key
	if bytes.HasPrefix(k.msg.Key, []byte(ReservedPrefix)) { // a daemon asked for itself: the key would tell nobody anything
		about = ""
	}
	return because(Timeout, "peer %q did not answer%s within %s: %s", k.hint, about, limit, c.Text)
}

func (k *keyOp) cancel(m *Machine, _ *op) {
	k.finish(m, WasCancelled, because(Cancelled, "cancelled by its owner"))
}

func (k *keyOp) lost(m *Machine, _ *op, _ *session, cause Cause) { k.finish(m, Failed, cause) }
func (k *keyOp) busy() bool                                      { return false }
func (k *keyOp) account(*op, *session) (uint64, []layout.Run)    { return 0, nil }
func (k *keyOp) freed(*Machine, *op)                             {}

func (m *Machine) keyOpsOf(p *peer) []*keyOp {
	var out []*keyOp
	for _, k := range m.keyOps {
		if k.peer == p && k.asked {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *keyOp) int { return cmp.Compare(a.id, b.id) })
	return out
}

// keyAsked answers a watch or a drop, at the producer's side. A watch of a key that has no offer yet is answered when one comes.
func (m *Machine) keyAsked(p *peer, msg *MsgKey) {
	if !m.watchEarly(p, msg) {
		m.send(p, &MsgKeyAck{ID: msg.ID, Cause: m.keyVerdict(p, msg)})
	}
}

// watchEarly remembers a watch whose offer has not come yet. The watch is also repeated. So if it is forgotten, or
// there are too many to remember, that costs only a moment.
func (m *Machine) watchEarly(p *peer, msg *MsgKey) bool {
	g := m.graves.keys[string(msg.Key)]
	if msg.Drop || m.offers[string(msg.Key)] != nil || m.cfg.Broken.Interest {
		return false
	}
	if g == nil {
		g = m.note(p, msg)
	} else if _, past := g.verdict(m, msg.Token); past {
		return false
	}
	m.waitAt(g, m.newWatchNote(p, msg))
	return true
}

func (m *Machine) keyVerdict(p *peer, msg *MsgKey) Cause {
	o, g := m.offers[string(msg.Key)], m.graves.keys[string(msg.Key)]
	switch {
	case o != nil && o.item != nil: // it may be another receiver's by now
		return because(Invalid, "key %s is an item's, whose ends alone say what becomes of it", short(msg.Key))
	case o != nil && !sameToken(o.token, msg.Token) && !m.cfg.Broken.Stranger:
		return because(Denied, "key %s: wrong token; use the one that the offer was made with", short(msg.Key))
	case m.cfg.Broken.Interest:
	case o != nil && msg.Drop:
		o.drop(m, msg.Engine, msg.Instance)
	case o != nil:
		o.expireBy(m, m.now+m.clampLease(msg.For))
	case msg.Drop:
		return m.dropEarly(g, p, msg)
	case g != nil:
		cause, _ := g.verdict(m, msg.Token)
		return cause
	}
	return Cause{}
}

// dropEarly remembers a drop whose offer has not come yet. A drop of what has ended is no error: nothing has to be done.
func (m *Machine) dropEarly(g *grave, p *peer, msg *MsgKey) Cause {
	if g == nil {
		g = m.note(p, msg)
	} else if _, past := g.verdict(m, msg.Token); past {
		return Cause{}
	}
	for _, d := range g.drops {
		if d.engine == msg.Engine && d.instance == msg.Instance && sameToken(d.token, msg.Token) {
			m.keepLonger(g)
			return Cause{}
		}
	}
	return m.dropAt(g, dropNote{msg.Engine, msg.Instance, msg.Token})
}
