package sim

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// A node with a good certificate may be mad. Its machine is like the others, with engines that take and offer, so
// that its lies get far. Some of what its machine says is changed on its way, and some is withheld. In between come
// messages that are replayed, twisted or made up, slices that nobody asked for, and messages of a channel that is
// over. All of them are well formed: a malformed one ends the channel and reaches no machine. The node knows what it
// was told. Of what others have among themselves it knows the names, but not the tokens.
//
// What others take from it may be any bytes, and what it shares with others it may report as taken or not, as it
// likes. Everything else holds as ever, also at its own machine, to which its peers' answers make no sense: memory is
// written as granted and until RELEASED, all operations end in time, and nothing is left of them in the end. Nothing
// that it says affects what others have among themselves.

// madness is what a mad node does.
type madness struct {
	c       *Cluster
	n       *Node
	all     *forger            // what it has heard and said
	with    map[string]*forger // the same, by peer
	lies    int                // percent of its machine's messages that are changed
	silence int                // percent that are not sent
	pause   transfer.Time      // about how long it waits between things that nobody asked for
	strange int                // messages that no machine sent
}

// goMad makes one of the nodes mad, but not the first. What peers ask for ends soon in these seeds, or the end of a
// run would have to wait for it.
func (c *Cluster) goMad() {
	r := &c.rng
	n := pick(r, c.nodes[1:])
	c.mad = &madness{c: c, n: n, pause: r.span(2*ms, 60*ms), all: newForger(c, nil), with: map[string]*forger{}}
	n.mad = c.mad
	c.mad.mood()
	c.after(second, c.mad.ramble)
}

// mood sets how the node behaves for a while: it may be honest, mute, or full of lies.
func (d *madness) mood() {
	r := &d.c.rng
	if d.c.calm {
		return
	}
	d.lies, d.silence = r.in(0, 40), r.in(0, 20)
	switch {
	case r.hit(20):
		d.silence = 100
	case r.hit(20):
		d.lies, d.silence = 0, 0
	}
	d.c.after(r.span(200*ms, 3*second), d.mood)
}

// say sends what the machine says, or what the node says instead.
func (n *Node) say(e transfer.Send) {
	d, net := n.mad, &n.c.net
	if d == nil {
		net.send(n, e.Node, e.Epoch, e.Msg)
		return
	}
	f, r := d.knows(e.Node), &n.c.rng
	f.learn(e.Msg)
	switch {
	case r.hit(d.silence):
		return
	case !n.c.calm && r.hit(d.lies):
		if msg := f.twist(e.Msg); msg != nil {
			d.strange++
			net.send(n, e.Node, e.Epoch, msg)
		}
		if r.hit(60) {
			return // otherwise the truth is sent, too
		}
	}
	net.send(n, e.Node, e.Epoch, e.Msg)
}

// knows returns what it has heard from a peer and said to it.
func (d *madness) knows(peer string) *forger {
	if d.with[peer] == nil {
		d.with[peer] = newForger(d.c, d.all)
	}
	return d.with[peer]
}

// ramble does something that nobody asked for, again and again.
func (d *madness) ramble() {
	c, r := d.c, &d.c.rng
	if c.calm {
		return
	}
	to := pick(r, c.nodes)
	if epoch := d.n.views[to.name]; d.n.up && to.up && to != d.n && epoch != 0 && d.silence < 100 {
		for range r.in(1, 4) {
			d.strange++
			switch {
			case r.hit(10):
				d.throw(to, epoch)
			case r.hit(2):
				to.step(transfer.LinkLost{Node: d.n.name, Epoch: epoch})
			default:
				d.speak(to, epoch)
			}
		}
	}
	c.after(r.span(d.pause/2, 2*d.pause), d.ramble)
}

// speak sends an old message again, something like it, or something new.
func (d *madness) speak(to *Node, epoch uint64) {
	f, r := d.knows(to.name), &d.c.rng
	msg := f.again()
	if r.hit(10) {
		msg = d.all.again()
	}
	switch {
	case msg == nil || r.hit(30):
		msg = f.invent()
	case r.hit(60):
		msg = f.twist(msg)
	}
	_, asks := msg.(*transfer.MsgKey) // a question over a channel that is over gets no answer
	switch {
	case msg == nil:
	case r.hit(5) && !asks:
		to.step(transfer.PeerMsg{Node: d.n.name, Epoch: epoch + uint64(r.in(1, 3)) - 2, Msg: msg})
	default:
		d.c.net.send(d.n, to.name, epoch, msg)
	}
}

// throw lands a slice that nobody sent, as far as the other end's transport lets it: that knows where slices lie and
// how long they are.
func (d *madness) throw(to *Node, epoch uint64) {
	r := &d.c.rng
	var ids []transfer.Leg
	for id, l := range to.legs {
		if id.Peer == d.n.name && id.End == transfer.Consumer && len(l.segs) > 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.SortFunc(ids, func(a, b transfer.Leg) int { return cmp.Compare(a.Xfer, b.Xfer) })
	id, seg := pick(r, ids), uint32(r.n(2))
	known := to.find(id, seg)
	if known == nil || known.plan.Slices() == 0 || id.Epoch != epoch {
		return
	}
	f := &flight{to: to, key: transfer.SliceKey{Leg: id, Seg: seg, Slice: uint32(r.n(known.plan.Slices())), Attempt: uint32(r.n(3))}}
	f.key.Peer = to.name
	f.data = make([]byte, known.plan.Slice(int(f.key.Slice)).Bytes)
	f.land(d.n.name, to)
}

// over ends the madness: its channels break, or its daemon crashes, or it says nothing until all deadlines are over
// and then its channels break.
func (d *madness) over() {
	r := &d.c.rng
	d.silence = 0
	switch {
	case r.hit(30):
		d.silence = 100
		d.c.after(oblivion, func() {
			d.forgotten()
			d.silence = 0
			d.c.net.nodeGone(d.n)
		})
	case d.n.up && r.hit(50):
		d.n.crash(r.span(10*ms, second))
	default:
		d.c.net.nodeGone(d.n)
	}
}

// oblivion is the time after which everything that was asked of a daemon has ended. The longest is a get, followed by
// its take and the wait for word about that.
const oblivion = 50 * second

// forgotten checks that the others keep nothing for a node that has long been silent, except which ends it has.
func (d *madness) forgotten() {
	for _, n := range d.c.nodes {
		if n == d.n || !n.up {
			continue
		}
		for _, u := range n.m.PeerUses() {
			if u.Node == d.n.name && u.Takes+u.Gets+u.Held > 0 {
				d.c.fail("node %s: a node that is silent since %ds still uses %+v", n.name, oblivion/second, u)
			}
		}
	}
}
