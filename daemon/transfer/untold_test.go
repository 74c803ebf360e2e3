package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatFailsWithTheDaemonIsNotReported, nor what follows from it: neither that memory is free, nor that a cancel has its target's end. To a
// client that heard that the cancel was done, the target would run on, and it would send it to the next daemon again, about memory that it
// has given to others since.
func TestWhatFailsWithTheDaemonIsNotReported(t *testing.T) {
	for name, ending := range map[string]transfer.Event{
		"the daemon closes its channels": transfer.Ending{},
		"another session is told to go":  transfer.SessionClosed{Session: 2, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "the daemon stops"}},
	} {
		for _, ends := range []bool{false, true} {
			w := newTaker(t, 0)
			w.step(transfer.SessionOpened{Session: 2, Engine: "other", Role: transfer.Worker, Credits: 1000})
			take, x := w.take(0)
			w.grants(x, 0, 1)
			told := func(ev transfer.Event) (all []transfer.Complete) {
				for _, e := range w.m.Step(w.now, ev) {
					switch e := e.(type) {
					case transfer.Complete:
						all = append(all, e)
					case transfer.Fence:
						w.fences = append(w.fences, e.Leg)
					}
				}
				return all
			}
			all := told(transfer.Drain{Stop: true})
			if ends {
				all = append(all, told(ending)...)
			}
			all = append(all, told(transfer.PeerDown{Node: "b", Epoch: 1, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "the daemon stops"}})...)
			if len(w.fences) != 1 {
				t.Fatalf("%s: %d fences, want that of the take", name, len(w.fences))
			}
			all = append(all, told(transfer.Submit{Session: 1, UserData: 100, Op: &transfer.CancelOp{Target: take}})...)
			w.now += transfer.Second // longer than a fence may take without a word
			all = append(all, told(transfer.Tick{})...)
			all = append(all, told(transfer.Submit{Session: 1, UserData: 101, Op: &transfer.CancelOp{Target: take}})...)
			all = append(all, told(transfer.Fenced{Leg: w.fences[0], Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "not yet"}})...)
			all = append(all, told(transfer.Fenced{Leg: w.fences[0]})...)
			switch n := len(all); {
			case ends && n != 0:
				t.Errorf("%s: its client hears %+v", name, all)
			case !ends && n != 7: // the end, QUARANTINED and RELEASED; of each cancel DONE and RELEASED
				t.Errorf("while it stops, its client hears %+v", all)
			}
		}
	}
}

// newFinding is a receiving end whose get has found an item of node b's, and the grant with which b has it sent.
func newFinding(t *testing.T) (*asking, *transfer.MsgGrant) {
	a := newAsking(t, transfer.Endpoint)
	a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
	a.step(1, transfer.Submit{Session: 1, UserData: 2, Op: &transfer.GetOp{
		Target: 1, Match: transfer.MatchNext, Room: 10, Timeout: transfer.Second, Blocks: blocksOf(0, 10),
	}})
	l := arena(t, 4)
	a.hears(layoutMsg(l))
	a.hears(&transfer.MsgFound{Xfer: a.xfer, Home: 1, Item: 1, Bytes: 10, Capacity: 10, Key: []byte("i"), Token: anyToken, Taken: true})
	return a, &transfer.MsgGrant{
		Xfer: a.xfer, Incarnation: 1, Engine: "p", Transport: "tcp", Last: true, Slices: 1, Bytes: 10,
		Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: blocksOf(0, 10),
	}
}

// TestAnItemThatComesWhileTheDaemonEndsGoesBack: its home might not hear that it was received, and the client is not told that it was.
func TestAnItemThatComesWhileTheDaemonEndsGoesBack(t *testing.T) {
	a, grant := newFinding(t)
	a.hears(grant)
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: a.xfer, End: transfer.Consumer}
	a.step(2, transfer.Planned{Leg: leg, Slices: 1, Bytes: 10})
	a.step(2, transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg}})
	a.hears(&transfer.MsgSent{Xfer: a.xfer, Incarnation: 1, Segs: 1})
	a.step(2, transfer.Drain{Stop: true})
	a.step(2, transfer.Ending{})
	said := false
	for _, e := range a.m.Step(2, transfer.Fenced{Leg: leg}) {
		switch e := e.(type) {
		case transfer.Complete:
			t.Errorf("the client was told %+v", e)
		case transfer.Send:
			end, is := e.Msg.(*transfer.MsgEnd)
			said = said || is && end.Status == transfer.Failed && end.Cause.Reason == transfer.Restarted
		}
	}
	if !said {
		t.Error("the home was not told that the item was not received")
	}
}

// TestAnItemIsNotBegunWhileTheDaemonStops: its home might not hear how it ended.
func TestAnItemIsNotBegunWhileTheDaemonStops(t *testing.T) {
	for _, stops := range []bool{false, true} {
		a, grant := newFinding(t)
		if stops {
			a.step(2, transfer.Drain{Stop: true})
		}
		begun := false
		for _, e := range a.m.Step(2, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: grant}) {
			_, plans := e.(transfer.MakePlan)
			begun = begun || plans
		}
		if begun == stops {
			t.Errorf("the daemon stops: %v, and what was granted is begun: %v", stops, begun)
		}
	}
}

// TestWhatHasNotBegunHoldsNothingUp: a daemon that stops waits for what moves alone, since the next one can do the rest.
func TestWhatHasNotBegunHoldsNothingUp(t *testing.T) {
	e := idsOfSessions(t, nil)
	e.runs(e.take(1, "none", "", 0, 1))
	if n := e.m.Busy(); n != 2 {
		t.Errorf("%d ends of a take are under way, want both", n)
	}
	e.step(transfer.Drain{Stop: true})
	if n := e.m.Busy(); n != 0 {
		t.Errorf("%d ends of a take that has not begun hold up a daemon that stops", n)
	}
}
