package sim

import (
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// network is the channels between nodes. A channel is between two nodes and has an epoch; each side learns of its coming
// and going in its own time.
type network struct {
	c        *Cluster
	epoch    uint64
	channels map[[2]string]*channel
	cut      map[[2]string]bool
	deaf     map[[2]string]bool          // from, to: messages are lost, the channel lives
	unheard  map[[2]string]transfer.Time // from, to: since when nothing of the other reaches from, which may not know it yet
	lost     map[[2]string]transfer.Time // from, to: the same, when from knows of no channel to the other
	outlast  map[[2]string]transfer.Time // from, to: the last time at which from had given up waiting for the other's word about an item
}

type channel struct {
	epoch uint64
	up    bool
}

func newNetwork(c *Cluster) network {
	return network{c: c, channels: map[[2]string]*channel{}, cut: map[[2]string]bool{}, deaf: map[[2]string]bool{},
		unheard: map[[2]string]transfer.Time{}, lost: map[[2]string]transfer.Time{}, outlast: map[[2]string]transfer.Time{}}
}

func ends(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// port, behind a node's name, makes its address.
const port = ":7650"

// dial opens the channel to what a client named: a node's name, or its address name:7650.
func (w *network) dial(from *Node, hint string) {
	c := w.c
	name := strings.TrimSuffix(hint, port)
	from.later(c.delay(), func() {
		to := c.byName[name]
		switch {
		case to == nil:
			from.step(transfer.DialFailed{Hint: hint, Final: true, Cause: transfer.Cause{Reason: transfer.NotFound, Text: "peer \"" + hint + "\" is not known here"}})
		case !to.up || w.cut[ends(from.name, name)]:
			from.step(transfer.DialFailed{Hint: hint, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "connection refused"}})
		case to == from:
			from.step(transfer.PeerUp{Node: name, Hints: []string{hint}})
		default:
			w.open(from, to, hint)
		}
	})
}

func (w *network) open(from, to *Node, hint string) {
	ch := w.channels[ends(from.name, to.name)]
	if ch == nil {
		ch = &channel{}
		w.channels[ends(from.name, to.name)] = ch
	}
	if !ch.up {
		w.epoch++
		ch.epoch, ch.up = w.epoch, true
		epoch := ch.epoch
		to.later(w.c.delay(), func() { w.come(to, from.name, epoch, nil) })
	}
	w.come(from, to.name, ch.epoch, []string{hint})
}

// come tells a side that the channel is there, unless the side knows of a newer one.
func (w *network) come(n *Node, peer string, epoch uint64, hints []string) {
	if n.views[peer] > epoch {
		return
	}
	n.views[peer] = epoch
	long := w.outlasts(n.name, peer) == w.c.now
	delete(w.lost, [2]string{n.name, peer})
	delete(w.unheard, [2]string{n.name, peer})
	n.step(transfer.PeerUp{Node: peer, Epoch: epoch, Incarnation: uint64(n.c.byName[peer].life), Hints: hints})
	if long && !w.c.fixed {
		w.reunite(n, n.c.byName[peer])
	}
}

// sever breaks a channel. Each side notices later, or when the next one comes.
func (w *network) sever(pair [2]string) {
	ch := w.channels[pair]
	if ch == nil || !ch.up {
		return
	}
	ch.up = false
	w.c.tracef("channel %s-%s of epoch %d broke", pair[0], pair[1], ch.epoch)
	for i, name := range pair {
		n, peer, epoch := w.c.byName[name], pair[1-i], ch.epoch
		w.silence(name, peer)
		d := w.c.rng.span(0, second)
		if w.c.fixed {
			d = 20 * ms
		}
		n.later(d, func() { w.leave(n, peer, epoch) })
	}
}

// silence notes that from now on nothing of a peer reaches a node, if anything did.
func (w *network) silence(at, of string) {
	way := [2]string{at, of}
	if _, since := w.unheard[way]; !since {
		w.unheard[way] = w.c.now
	}
}

// leave tells a side that the channel is over, unless it knows of a newer one.
func (w *network) leave(n *Node, peer string, epoch uint64) {
	if n.views[peer] == epoch {
		n.views[peer] = 0
		w.lost[[2]string{n.name, peer}] = w.unheard[[2]string{n.name, peer}]
		n.step(transfer.PeerDown{Node: peer, Epoch: epoch, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "connection reset"}})
	}
}

// outlasts returns the last time at which a node had given up waiting for another's word about an item; 0: it never
// had.
func (w *network) outlasts(from, to string) transfer.Time {
	way := [2]string{from, to}
	if since, lost := w.lost[way]; lost && w.c.now-since >= 2*w.c.cfg.Linger {
		w.outlast[way] = w.c.now
	}
	return w.outlast[way]
}

// live is true while bytes of that epoch get through.
func (w *network) live(a, b string, epoch uint64) bool {
	ch := w.channels[ends(a, b)]
	return ch != nil && ch.up && ch.epoch == epoch
}

// nodeGone breaks all channels of a node that died.
func (w *network) nodeGone(n *Node) {
	for _, o := range w.c.nodes {
		w.sever(ends(n.name, o.name))
	}
}

// send carries a message: it may be lost, doubled, late, or overtaken.
func (w *network) send(from *Node, to string, epoch uint64, msg transfer.Msg) {
	c := w.c
	if from.views[to] != epoch {
		return
	}
	if s, ok := msg.(*transfer.MsgSeek); ok && (from.before || c.byName[to].before) {
		said := *s
		said.Take, msg = nil, &said
	}
	if forRoom(msg) {
		c.crowded++
	}
	if g, ok := msg.(*transfer.MsgGrant); ok {
		msg = clone(g) // it is encoded now; the machine's own may change
	}
	copies := 1
	if !c.calm {
		if c.rng.hit(c.faults.loss) || w.deaf[[2]string{from.name, to}] {
			copies = 0
		} else if c.rng.hit(c.faults.dup) {
			copies = 2
		}
		if asks(msg) && c.rng.hit(c.faults.replay) {
			for range c.rng.in(1, 4) {
				c.after(c.rng.span(0, 1500*ms), func() { w.arrive(from.name, to, epoch, clone(msg)) })
			}
		}
	}
	for range copies {
		d := c.delay()
		if !c.calm && c.rng.hit(c.faults.slow) {
			d += c.rng.span(0, 1500*ms)
		}
		c.after(d, func() { w.arrive(from.name, to, epoch, clone(msg)) })
	}
}

func (w *network) arrive(from, to string, epoch uint64, msg transfer.Msg) {
	n := w.c.byName[to]
	if n.up && n.views[from] == epoch && w.live(from, to, epoch) {
		if n.mad != nil {
			n.mad.knows(from).learn(msg)
		}
		n.step(transfer.PeerMsg{Node: from, Epoch: epoch, Msg: msg})
	}
}

// asks says whether a message begins something where it arrives.
func asks(msg transfer.Msg) bool {
	switch msg.(type) {
	case *transfer.MsgTake, *transfer.MsgSeek:
		return true
	}
	return false
}

// clone copies a message, as a wire does: each end has its own.
func clone(msg transfer.Msg) transfer.Msg {
	switch m := msg.(type) {
	case *transfer.MsgTake:
		cp := *m
		return &cp
	case *transfer.MsgSeek:
		cp := *m
		return &cp
	case *transfer.MsgGrant:
		cp := *m
		cp.Inline = slices.Clone(m.Inline)
		return &cp
	}
	return msg
}

// delay is how long small things take.
func (c *Cluster) delay() transfer.Time {
	if c.fixed {
		return 1 * ms
	}
	if c.rng.hit(10) {
		return c.rng.span(0, 40*ms)
	}
	return c.rng.span(0, 3*ms)
}
