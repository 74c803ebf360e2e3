package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// keyed is a machine of which a session owns a buffer with an entry of key "k", which ends on several nodes may read.
type keyed struct {
	*asker
	insert uint64 // the entry's operation
}

func newKeyed(t *testing.T) *keyed {
	k := &keyed{newAsker(t, 0), 2}
	k.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	k.step(transfer.LayoutSet{Session: 1, Layout: arena(t, 64)})
	k.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 16}})
	k.step(transfer.Submit{Session: 1, UserData: k.insert, Op: &transfer.PutOp{
		Target: 1, Form: transfer.MatchKey, Key: []byte("k"), Bytes: 256, Blocks: blocksOf(0, 256),
	}})
	k.step(transfer.PeerUp{Node: "c", Epoch: 2})
	return k
}

// reads lets a node ask for the entry as operation 57 of engine "f", and returns what it found.
func (k *keyed) reads(node string, epoch uint64, x transfer.XferID) (found *transfer.MsgFound) {
	k.tb.Helper()
	l := arena(k.tb, 64)
	k.step(transfer.PeerMsg{Node: node, Epoch: epoch, Msg: layoutMsg(l)})
	k.step(transfer.PeerMsg{Node: node, Epoch: epoch, Msg: &transfer.MsgSeek{
		Xfer: x, Bind: 1, Buffer: true, Name: "n", Match: transfer.MatchKey, Key: []byte("k"), Room: 256, Deadline: 60 * transfer.Second,
		Take: &transfer.MsgTake{Engine: "f", TakeID: 57, Parts: 1, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: blocksOf(0, 256)},
	}})
	for _, msg := range k.said {
		if f, ok := msg.(*transfer.MsgFound); ok {
			found = f
		}
	}
	if found == nil || len(k.begun) != 1 {
		k.tb.Fatalf("node %q was told %+v, and %d takes begin", node, k.said, len(k.begun))
	}
	return found
}

// TestReadersOfOneNameOnSeveralNodes: one engine's ends on two nodes count their operations alike. One's read is not the other's begun again.
func TestReadersOfOneNameOnSeveralNodes(t *testing.T) {
	k := newKeyed(t)
	k.reads("b", 1, 8)
	k.fences = nil
	k.reads("c", 2, 9)
	if len(k.fences) > 0 {
		t.Errorf("the read of node b is ended as that of node c begins: %+v", k.fences)
	}
}

// TestAnItemIsNotDropped: who was once told an item's key, to take it, cannot have it counted as taken.
func TestAnItemIsNotDropped(t *testing.T) {
	k := newKeyed(t)
	found := k.reads("b", 1, 8)
	for _, drop := range []bool{true, false} {
		msg := &transfer.MsgKey{ID: 1, Drop: drop, Engine: "f", Key: found.Key, Token: found.Token, For: 1}
		for _, e := range k.m.Step(k.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) {
			switch e := e.(type) {
			case transfer.Complete:
				t.Errorf("the entry ends: %+v", e)
			case transfer.Send:
				if ack, ok := e.Msg.(*transfer.MsgKeyAck); ok && ack.Cause.Reason != transfer.Invalid {
					t.Errorf("the answer is %+v", ack)
				}
			}
		}
	}
	k.later(k.now + transfer.Second)
	k.reads("c", 2, 9)
}

// TestALateRefusal: that a take has to wait was said before it was granted, and is heard after that.
func TestALateRefusal(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.take(0)
	w.piece(x, 0, 1, true, nil)
	w.says(&transfer.MsgRefuse{Xfer: x, Cause: transfer.Cause{Reason: transfer.Quota, Text: "later"}, Retry: transfer.Second})
	w.goesOn(user)
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	w.lands(x, 0, 0)
	w.fenced()
	if c := w.ends[user]; c.Status != transfer.Done {
		t.Errorf("the take ended %+v", c)
	}
}

// TestReadsOfAnEntryAreNotKept: it may be read by any number of gets, and nothing of those that are over stays with it.
func TestReadsOfAnEntryAreNotKept(t *testing.T) {
	k := newKeyed(t)
	for x := range transfer.XferID(5) {
		found := k.reads("b", 1, x+1)
		leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x + 1, End: transfer.Producer}
		k.step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 256, Transport: "tcp"})
		born := k.granted()
		k.asks(&transfer.MsgGo{Xfer: x + 1})
		k.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
		k.asks(&transfer.MsgEnd{Xfer: x + 1, Status: transfer.Done, Incarnation: born})
		k.step(transfer.Fenced{Leg: leg})
		if n := k.m.Claims(string(found.Key)); n != 0 {
			t.Fatalf("%d reads that are over are remembered", n)
		}
	}
}
