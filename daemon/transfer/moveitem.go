package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// moveItem hands an item over within this node without more machinery, if possible: by MoveNow, or at once because it
// has no bytes. It returns false if that was not tried.
func (m *Machine) moveItem(t *take, it *item) bool {
	if it.bytes == 0 {
		t.finishHere(m)
		m.consumedBy(&t.get.local)
		return true
	}
	x := &m.trial
	src, dst := it.segs[0].blocks, t.in.Blocks
	switch {
	case m.cfg.AtOnce == 0 || m.cfg.Debug || x.pending || x.s != nil:
		return false
	case it.busy() || layout.CountIDs(src) > m.cfg.AtOnce || layout.CountIDs(dst) > m.cfg.AtOnce:
		return false
	case m.agree(it.by.asRank[:], t.by.asRank[:]).Reason != OK:
		return false
	}
	x.pending, x.s, x.get, x.item = true, t.by, t, it
	x.move = MoveNow{Producer: it.by.asRank[:], Consumer: t.by.asRank[:], Src: src, Dst: dst, Whole: true, Granted: Granted{Slot: NoSlot}}
	m.emit(&x.move)
	return true
}

// movedItem ends the GET whose item was moved, or takes the item the usual way.
func (m *Machine) movedItem(ev MovedNow) {
	x := &m.trial
	t, it := x.get, x.item
	if !ev.OK || it.ended {
		*x = trial{}
		if it.ended {
			t.refusedSeek(m, because(Expired, "%s: the item was withdrawn while it was being received", t.get.end.name))
			return
		}
		o := m.asOffer(it)
		t.in.Key, t.in.Token = []byte(o.key), o.token
		t.phase = phaseAsking
		t.ask(m)
		return
	}
	t.get.bytes = ev.Bytes
	t.finishHere(m)
	m.emit(Yield{})
}

// consumedBy notes that the seeker that found an item has it.
func (m *Machine) consumedBy(k *seeker) {
	m.consumed(k.item)
	m.unseek(k)
}
