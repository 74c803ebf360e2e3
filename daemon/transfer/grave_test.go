package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// end has the session offer something under the key, and withdraw it.
func (e *watched) end(s transfer.SessionID, key string) {
	e.user++
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{0}}}
	e.m.Step(e.now, transfer.Submit{Session: s, UserData: e.user, Op: &transfer.OfferOp{Key: []byte(key), Token: watchToken, Blocks: blocks, Sealed: true}})
	e.m.Step(e.now, transfer.Submit{Session: s, UserData: e.user + 1<<32, Op: &transfer.WithdrawOp{Target: e.user}})
}

// expired says whether who asks for the key is told at once that its offer has ended.
func (e *watched) expired(key string) bool {
	e.user++
	x := transfer.XferID(e.user)
	for _, f := range e.m.Step(e.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgTake{
		Xfer: x, Key: []byte(key), Token: watchToken, Engine: "d", Instance: "i", Deadline: transfer.Second, Parts: 1,
	}}) {
		if s, ok := f.(transfer.Send); ok {
			if r, ok := s.Msg.(*transfer.MsgRefuse); ok && r.Xfer == x && r.Cause.Reason == transfer.Expired {
				return true
			}
		}
	}
	return false
}

// TestEndedKeysOfOthersAreRemembered: whoever ends offers by the thousand, or asks for what there is not, has its own notes forgotten.
func TestEndedKeysOfOthersAreRemembered(t *testing.T) {
	const most = 16
	e := newWatched(t, transfer.Config{MaxTombstones: most})
	e.m.Step(e.now, transfer.PeerUp{Node: "b", Epoch: 1})
	e.m.Step(e.now, transfer.PeerUp{Node: "mad", Epoch: 1})
	for i := range 3 {
		e.end(1, fmt.Sprint("quiet ", i))
	}
	for i := range 10 * most {
		e.end(3, fmt.Sprint("flood ", i))
	}
	for i := range uint64(10 * most) {
		e.m.Step(e.now, transfer.PeerMsg{Node: "mad", Epoch: 1, Msg: &transfer.MsgKey{
			ID: i, Drop: i%2 == 0, Engine: fmt.Sprint(i), Key: fmt.Append(nil, "mad ", i), Token: watchToken, For: transfer.Second,
		}})
	}
	for i := range 3 {
		if key := fmt.Sprint("quiet ", i); !e.expired(key) {
			t.Errorf("%q is forgotten", key)
		}
	}
	if e.expired("flood 0") || !e.expired(fmt.Sprint("flood ", 10*most-1)) {
		t.Error("who ends many has not its oldest forgotten, and its newest remembered")
	}
	if n := e.m.Snapshot().Tombstones; n != most-1 {
		t.Errorf("%d keys are remembered, want %d: one is watched, which counts", n, most-1)
	}
}

// TestEndedKeysAreForgottenInTime: each when its time has come, whoever ended it.
func TestEndedKeysAreForgottenInTime(t *testing.T) {
	e := newWatched(t, transfer.Config{TombstoneFor: 10 * transfer.Second})
	left := func(want int) {
		t.Helper()
		e.m.Step(e.now, transfer.Tick{})
		if n := e.m.Snapshot().Tombstones; n != want {
			t.Errorf("after %d s %d keys are remembered, want %d", e.now/transfer.Second, n, want)
		}
	}
	e.end(1, "k")
	e.now = 4 * transfer.Second
	e.end(3, "l")
	e.end(1, "m")
	left(3)
	e.now = 11 * transfer.Second
	left(2)
	e.now = 15 * transfer.Second
	left(0)
	e.end(1, "k")
	left(1)
	e.now = 26 * transfer.Second
	left(0)
}

// TestEndedKeysAreForgotten: all of them in time, also when the last one was offered again meanwhile.
func TestEndedKeysAreForgotten(t *testing.T) {
	e := newWatched(t, transfer.Config{})
	for _, key := range []string{"a", "b", "b", "c"} { // as "b" is offered again, it is remembered no more until it ends
		e.end(1, key)
	}
	if n := e.m.Snapshot().Tombstones; n != 3 {
		t.Fatalf("%d ended keys are remembered, want 3", n)
	}
	e.wait(61)
	if n := e.m.Snapshot().Tombstones; n != 0 {
		t.Errorf("%d ended keys are remembered for good", n)
	}
}
