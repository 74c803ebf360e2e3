package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// reader is node b, whose gets find the same entry of node a's, of no bytes: each has all of it as soon as it is found.
type reader struct {
	*asker
	epoch uint64
	xfer  transfer.XferID
}

// newReader lets b have three gets at a time.
func newReader(t *testing.T) *reader {
	r := &reader{asker: newAsker(t, 0), epoch: 1}
	r.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	r.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 14}})
	r.put(2)
	return r
}

func (r *reader) put(user uint64) {
	r.step(transfer.Submit{Session: 1, UserData: user, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchKey, Key: []byte("k")}})
}

func (r *reader) says(msg transfer.Msg) {
	r.step(transfer.PeerMsg{Node: "b", Epoch: r.epoch, Msg: msg})
}

// seeks asks for the entry, and says whether it was found; else b is to ask again.
func (r *reader) seeks() bool {
	r.tb.Helper()
	r.xfer++
	r.says(&transfer.MsgSeek{Xfer: r.xfer, Bind: 1, Buffer: true, Name: "n", Match: transfer.MatchKey, Key: []byte("k"), Deadline: transfer.Second})
	for _, msg := range r.said {
		switch msg := msg.(type) {
		case *transfer.MsgFound:
			return true
		case *transfer.MsgSeekRefuse:
			if msg.Cause.Reason != transfer.Quota || msg.Retry == 0 {
				r.tb.Errorf("get %d is refused: %+v", r.xfer, msg)
			}
			return false
		}
	}
	r.tb.Errorf("get %d: b was told %+v", r.xfer, r.said)
	return false
}

// returns loses the channel, and returns how many gets b is asked about over the next one.
func (r *reader) returns() (asked int) {
	r.step(transfer.PeerDown{Node: "b", Epoch: r.epoch, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
	r.epoch++
	r.step(transfer.PeerUp{Node: "b", Epoch: r.epoch})
	for _, msg := range r.said {
		if _, ok := msg.(*transfer.MsgAbort); ok {
			asked++
		}
	}
	return asked
}

// TestWhoGoesAwayAndComesBackHasNoMoreGets: those of which nobody knows how they ended count until that is told, or a while is over.
func TestWhoGoesAwayAndComesBackHasNoMoreGets(t *testing.T) {
	r := newReader(t)
	for range 3 {
		if !r.seeks() {
			t.Error("one of three gets is put off")
		}
	}
	for range 5 {
		if n := r.returns(); n != 3 {
			t.Errorf("b is asked how %d gets ended, want 3", n)
		}
		if r.seeks() {
			t.Error("a fourth get is served")
		}
	}
	r.says(&transfer.MsgEnd{Xfer: 2, Status: transfer.Done})
	if !r.seeks() {
		t.Error("b has told how one of its gets ended, and may not have another")
	}
	if r.seeks() {
		t.Error("it may have two")
	}
	r.returns()
	r.later(20 * transfer.Second)
	for range 3 {
		if !r.seeks() {
			t.Error("the time of the first ones is over, and a get is put off")
		}
	}
}

// TestAReplacedEntryEndsWithItsLastReader: in whichever order they end.
func TestAReplacedEntryEndsWithItsLastReader(t *testing.T) {
	for _, order := range [][]transfer.XferID{{1, 2, 3}, {3, 2, 1}, {2, 1, 3}, {2, 3, 1}} {
		r := newReader(t)
		for range 3 {
			r.seeks()
		}
		r.put(3)
		for i, x := range order {
			r.says(&transfer.MsgEnd{Xfer: x, Status: transfer.Done})
			if n, want := r.m.Items(), 1+min(2-i, 1); n != want {
				t.Errorf("%v: %d entries after %d ends, want %d", order, n, i+1, want)
			}
		}
	}
}

// TestALateWordEndsNothingThatOthersHave: an item that came free because its receiver was away for long is the next one's, whatever the first has to say.
func TestALateWordEndsNothingThatOthersHave(t *testing.T) {
	r := newReader(t)
	r.step(transfer.Submit{Session: 1, UserData: 3, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchAny}})
	seek := func(node string, epoch uint64) (found bool) {
		r.step(transfer.PeerMsg{Node: node, Epoch: epoch, Msg: &transfer.MsgSeek{Xfer: 7, Bind: 1, Buffer: true, Name: "n", Match: transfer.MatchAny, Deadline: transfer.Second}})
		for _, msg := range r.said {
			_, is := msg.(*transfer.MsgFound)
			found = found || is
		}
		return found
	}
	if !seek("b", 1) {
		t.Fatalf("b was told %+v", r.said)
	}
	r.step(transfer.PeerDown{Node: "b", Epoch: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
	for range 30 {
		r.later(transfer.Second)
	}
	r.step(transfer.PeerUp{Node: "c", Epoch: 5})
	if !seek("c", 5) {
		t.Fatalf("c was told %+v", r.said)
	}
	r.epoch = 6
	r.step(transfer.PeerUp{Node: "b", Epoch: r.epoch})
	r.says(&transfer.MsgEnd{Xfer: 7, Status: transfer.Done})
	if n := r.m.Items(); n != 2 {
		t.Errorf("%d entries after the word of b, want 2", n)
	}
	r.step(transfer.PeerMsg{Node: "c", Epoch: 5, Msg: &transfer.MsgEnd{Xfer: 7, Status: transfer.Done}})
	if n := r.m.Items(); n != 1 {
		t.Errorf("%d entries after the word of c, want 1", n)
	}
}
