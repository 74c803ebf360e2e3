package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// introduce names ranks to a peer. It sends the layouts that were not sent on this channel before, as far as that is
// remembered: engines come and go while a channel stays. The peer forgets earlier ones, too, and asks for what it needs.
func (m *Machine) introduce(p *peer, ranks []RankLayout) []RankRef {
	refs := make([]RankRef, len(ranks))
	for i, r := range ranks {
		refs[i] = RankRef{Rank: r.Rank, Digest: r.Layout.Digest()}
		if !p.told[refs[i].Digest] {
			if len(p.told) >= maxKnown {
				clear(p.told) // the peer forgets at the same number, and ignores what it has already
			}
			p.told[refs[i].Digest] = true
			m.send(p, &MsgLayout{r.Layout})
		}
	}
	return refs
}

func (m *Machine) learnLayout(p *peer, msg *MsgLayout) {
	l := msg.Layout
	if p == nil || p.knows[l.Digest()] != nil {
		return
	}
	k := newKnown(l)
	if len(p.knows) >= maxKnown || p.known+k.cost > maxKnownCost {
		m.forgetLayouts(p) // the peer is asked for those that are needed
	}
	p.known += k.cost
	p.knows[l.Digest()] = k
}

// forgetLayouts drops the layouts of a peer.
func (m *Machine) forgetLayouts(p *peer) {
	p.knows, p.known = map[[32]byte]*known{}, 0
}

// resolve turns references into layouts. If some are missing, it asks for them and returns nil.
func (m *Machine) resolve(p *peer, x XferID, end End, refs []RankRef) []RankLayout {
	var missing [][32]byte
	var named map[[32]byte]bool
	out := make([]RankLayout, len(refs))
	for i, r := range refs {
		k := p.knows[r.Digest]
		if k == nil {
			if named == nil {
				named = map[[32]byte]bool{}
			}
			if !named[r.Digest] {
				missing = append(missing, r.Digest)
			}
			named[r.Digest] = true
			continue
		}
		out[i] = RankLayout{Rank: r.Rank, Layout: k.layout, known: k}
	}
	if missing != nil {
		m.send(p, &MsgNeedLayout{Xfer: x, End: end, Digests: missing})
		return nil
	}
	return out
}

// consumerRanks finds the layouts behind a take; nil while some are on their way.
func (m *Machine) consumerRanks(v *serve) []RankLayout {
	if v.peer == nil {
		return m.takes[v.leg.id.Xfer].layouts
	}
	return m.resolve(v.peer, v.leg.id.Xfer, Producer, v.take.Ranks)
}

// layoutNeeded sends layouts again, and then the message that named them.
func (m *Machine) layoutNeeded(p *peer, msg *MsgNeedLayout) {
	if p == nil {
		return
	}
	if msg.End == Producer {
		if t := m.takeOf(p, msg.Xfer); t != nil && t.stage == stageRunning && t.pace.may(m, p) {
			m.resend(p, t.layouts, msg.Digests)
			t.ask(m)
		}
		return
	}
	if v := m.serveOf(p, msg.Xfer); v != nil && v.state == serveMoving && v.layouts.may(m, p) {
		m.resend(p, v.offer.layouts, msg.Digests)
		v.repeat(m)
	}
}

// resend sends those of the ranks' layouts that were asked for, each once, however often it is named: ranks may share
// one, and a layout is much longer than its name.
func (m *Machine) resend(p *peer, ranks []RankLayout, digests [][32]byte) {
	asked := make(map[[32]byte]bool, len(digests))
	for _, d := range digests {
		asked[d] = true
	}
	for _, r := range ranks {
		if d := r.Layout.Digest(); asked[d] {
			delete(asked, d)
			m.send(p, &MsgLayout{r.Layout})
		}
	}
}

// agree checks every rank's fingerprint against each one of the other side.
func (m *Machine) agree(producer, consumer []RankLayout) Cause {
	for i := range producer {
		for j := range consumer {
			if c := m.agreed1(producer[i].Layout, consumer[j].Layout); c.Reason != OK {
				return c
			}
		}
	}
	return Cause{}
}

func (m *Machine) agreed1(producer, consumer *layout.Layout) Cause {
	if layout.SameFingerprint(producer, consumer) || m.cfg.Broken.Stranger {
		return Cause{}
	}
	key, a, b, _ := layout.FingerprintDiff(producer, consumer)
	return because(Incompatible, "fingerprint field %q is %q at the producer and %q at the consumer; both engines must serve the same model alike", key, a, b)
}
