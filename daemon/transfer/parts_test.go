package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// site is one of the nodes over which engine "f" is spread, as the asked machine sees it.
type site struct {
	*asker
	node  string
	epoch uint64
}

func (a *asker) site(node string, epoch uint64) site {
	a.step(transfer.PeerUp{Node: node, Epoch: epoch})
	return site{a, node, epoch}
}

func (s site) says(msg transfer.Msg) {
	s.step(transfer.PeerMsg{Node: s.node, Epoch: s.epoch, Msg: msg})
}

// asksFor has an instance of an engine ask for part i of n of a take.
func (s site) asksFor(x transfer.XferID, engine, instance string, take uint64, i, n int) {
	s.tb.Helper()
	l := oneRank(s.tb)
	s.says(layoutMsg(l))
	msg := takeOf(x, l)
	msg.Engine, msg.Instance, msg.TakeID, msg.Part, msg.Parts = engine, instance, take, i, n
	s.says(msg)
}

// grants checks that the last step began a transfer, and has it planned; born is the offer that it is of.
func (s site) grants(x transfer.XferID) (leg transfer.Leg, born uint64) {
	s.tb.Helper()
	s.begins(x)
	leg = transfer.Leg{Peer: s.node, Epoch: s.epoch, Xfer: x, End: transfer.Producer}
	s.step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 4096, Transport: "tcp"})
	return leg, s.granted()
}

// part has an instance of the engine ask for part i of n of a take, which has to begin.
func (s site) part(x transfer.XferID, instance string, take uint64, i, n int) (leg transfer.Leg, born uint64) {
	s.tb.Helper()
	s.asksFor(x, "f", instance, take, i, n)
	return s.grants(x)
}

// has has the node say that all of a transfer is in place, and says whether the offer is still there.
func (s site) has(x transfer.XferID, born uint64) (stands bool) {
	s.says(&transfer.MsgEnd{Xfer: x, Status: transfer.Done, Incarnation: born})
	return len(s.m.Snapshot().Offers) > 0
}

// TestAnEngineDoesNotWaitForItself: a part that its producer never hears of leaves the rest of the take without it. What the engine takes next,
// and what its next instance does, begins all the same.
func TestAnEngineDoesNotWaitForItself(t *testing.T) {
	for _, next := range []string{"1", "2"} {
		a := newAsker(t, 0)
		a.offers(1)
		b, c := a.site("b", 1), a.site("c", 2)
		_, born := b.part(1, "1", 7, 0, 2)
		b.has(1, born)
		b.part(2, next, 8, 0, 2)
		c.part(1, next, 8, 1, 2)
		if !b.has(2, born) || c.has(1, born) {
			t.Errorf("instance %s: the offer did not end with the second part of the take that was whole", next)
		}
	}
}

// TestTakesOfOneEngineHaveOnePlace: what is left of one that was begun twice keeps nobody else out.
func TestTakesOfOneEngineHaveOnePlace(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(2)
	b := a.site("b", 1)
	_, born := b.part(1, "1", 7, 0, 2)
	b.has(1, born)
	b.part(2, "1", 8, 0, 2)
	b.asksFor(3, "g", "1", 9, 0, 1)
	b.begins(3)
}

// TestPartsOfOtherNumbersDoNotMix: a commit record that comes late, when its engine says that there are fewer parts, is none of theirs.
func TestPartsOfOtherNumbersDoNotMix(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	b := a.site("b", 1)
	leg, born := b.part(1, "1", 7, 2, 3)
	b.says(&transfer.MsgGo{Xfer: 1})
	b.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
	b.step(transfer.PeerDown{Node: "b", Epoch: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
	b.step(transfer.Fenced{Leg: leg})
	b = a.site("b", 2)
	b.part(2, "1", 7, 0, 2)
	if !b.has(1, born) || !b.has(2, born) {
		t.Error("the offer ended with part 2 of 3 and part 0 of 2")
	}
	b.part(3, "1", 7, 1, 2)
	if b.has(3, born) {
		t.Error("both parts are in place, and the offer stands")
	}
}

// TestATakeThatIsBegunAgainEndsTheOneBefore: also if yet another one, which had sent everything, went through meanwhile.
func TestATakeThatIsBegunAgainEndsTheOneBefore(t *testing.T) {
	b := offered(t, 2)
	b.takes(1, "f", "1", 7, 0, 1)
	leg, born := b.part(2, "1", 8, 0, 1)
	b.says(&transfer.MsgGo{Xfer: 2})
	b.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
	before, _ := b.part(3, "1", 8, 0, 1)
	if !b.has(2, born) {
		t.Fatal("one engine's take, done twice, ends an offer for two")
	}
	b.fences = nil
	b.part(4, "1", 8, 0, 1)
	if len(b.fences) != 1 || b.fences[0] != before {
		t.Errorf("when transfer 4 begins, %v are fenced, want 3 alone, which it begins again", b.fences)
	}
}
