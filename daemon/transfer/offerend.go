package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// expireBy moves the end of the lease to at, but never back.
func (o *offer) expireBy(m *Machine, at Time) {
	if o.orphaned {
		at = min(at, o.outlives)
	}
	if m.cfg.Broken.Lease {
		at += 20 * Second
	}
	if at > o.expires && !o.ended && o.item == nil {
		o.expires = at
		if o.expiry.pos == 0 { // a later lease is noticed when the timer fires
			m.arm(&o.expiry, o, wakeExpiry, at)
		}
	}
}

// renew extends the lease. Every sign of life of a consumer does so.
func (o *offer) renew(m *Machine) { o.expireBy(m, m.now+o.lease) }

func (o *offer) fire(m *Machine, _ wake) {
	if len(o.serves) > 0 || len(m.parked[o.key]) > 0 {
		o.renew(m) // a live take is the best sign of interest, and has a deadline of its own
	}
	if m.now < o.expires {
		m.arm(&o.expiry, o, wakeExpiry, o.expires)
		return
	}
	if o.orphaned && m.now >= o.outlives {
		o.end(m, Failed, because(Expired, "key %s: engine %q died, and offers.orphan_lease is over since; make a new request", short(o.key), o.engine.key.name), "outlived its engine and ended")
		return
	}
	advice := "for longer"
	if o.lease >= m.cfg.MaxLease {
		advice = "and have it taken sooner: leases are cut to offers.max_lease"
	}
	o.end(m, Failed, because(Expired, "key %s: its lease of %s ran out and nobody renewed it; offer it again, %s", short(o.key), duration(o.lease), advice), "expired")
}

// end ends the offer, for all its ranks. Reads in flight are fenced before blocks are reported free. how says what
// became of it, to whoever asks for the key later.
func (o *offer) end(m *Machine, status Status, cause Cause, how string) {
	o.endAs(m, status, cause, Cause{}, how)
}

// endAs is end, except that takes in mid-transfer hear word, if it is set, instead of the offer's epitaph.
func (o *offer) endAs(m *Machine, status Status, cause, word Cause, how string) {
	if o.ended {
		return
	}
	o.ended = true
	o.outlived(-o.open)
	delete(o.engine.outlived, o)
	m.disarm(&o.expiry)
	if m.offers[o.key] == o { // and not one that took its place
		delete(m.offers, o.key)
		if o.item == nil {
			m.bury(o, how)
		}
	}
	for _, v := range append([]*serve(nil), o.serves...) {
		if word.Reason == OK {
			word = o.epitaph(status, cause, how)
		}
		v.abort(m, word)
	}
	for _, mb := range o.members {
		m.conclude(&mb.op, status, cause)
	}
	m.wakeKey(o.key)
}

// epitaph is what takes in mid-transfer hear. A receiver of an item knows no key.
func (o *offer) epitaph(status Status, cause Cause, how string) Cause {
	what, advice := "key "+short(o.key)+": the offer", "; make a new request"
	if o.item != nil {
		what, advice = "an item of "+o.item.home.place.String(), ""
	}
	switch {
	case how == consumed:
		return because(Expired, "%s was consumed by others%s", what, advice)
	case status == WasCancelled:
		return because(Expired, "%s was withdrawn by engine %q%s", what, o.engine.key.name, advice)
	case o.item != nil:
		return because(PeerGone, "%s is lost with its sender: %s", what, cause.Text)
	}
	return cause
}

// opens counts legs that may read the blocks, from then on (n is 1) or no more (-1).
func (o *offer) opens(n int) {
	o.open += n
	if it := o.item; it != nil && !it.ended {
		it.home.legs += n
	}
	if !o.ended {
		o.outlived(n)
	}
}

// outlived counts n legs at the dead sessions in whose memory an offer that has not ended lies.
func (o *offer) outlived(n int) {
	for _, s := range o.dead {
		s.reads += n
	}
}

// settle frees the blocks once no leg may read them.
func (o *offer) settle(m *Machine) {
	if o.open > 0 {
		return
	}
	for _, mb := range o.members {
		m.settle(&mb.op)
	}
}

func (mb *member) busy() bool { return mb.offer.open > 0 }

func (mb *member) cancel(m *Machine, _ *op) {
	mb.offer.end(m, WasCancelled, because(Cancelled, "withdrawn by its owner"), withdrawn)
}

// lost ends the offer with a session whose memory it names, unless the offer may outlive that.
func (mb *member) lost(m *Machine, o *op, s *session, cause Cause) {
	if mb.survives(m, s) {
		mb.offer.outlive(m, s)
		return
	}
	key, word := mb.offer.key, cause
	if len(o.notify) > 1 || len(mb.offer.members) > 1 {
		word = m.bereft(s, key, cause, Unavailable, "offer again when it is back")
	}
	mb.offer.endAs(m, Failed, word, m.bereft(s, key, cause, PeerGone, "make a new request"), "ended with its engine")
}

// account returns the bytes of all ranks to the session that offered. What each rank gave is not counted: no plan says
// it, and small takes would pay for the counting.
func (mb *member) account(o *op, s *session) (uint64, []layout.Run) {
	if s == o.by {
		return mb.offer.bytes, nil
	}
	return 0, nil
}

func (mb *member) freed(m *Machine, o *op) {
	o.by.used[quotaOffers]--
	m.estates.add(o.by.testator(), -mb.left)
	mb.left = 0
	mb.shrink()
	m.bereave(mb)
}
