package transfer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAFullRingSaysWhatIsInIt: a client whose operations are not released is not told to collect what is not there yet, and one that
// collects nothing is not told to wait.
func TestAFullRingSaysWhatIsInIt(t *testing.T) {
	const ring = 3*transfer.MostCompletions + 1
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: ring})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	user := uint64(0)
	submit := func(op transfer.Op) (end transfer.Complete) {
		user++
		for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: user, Op: op}) {
			if c, ok := e.(transfer.Complete); ok && c.UserData == user {
				end = c
			}
		}
		return end
	}
	offer := func() transfer.Complete {
		return submit(&transfer.OfferOp{
			Key: fmt.Append(nil, user), Token: anyToken, Sealed: true, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(user % 8)}}},
		})
	}
	says := func(reserved, uncollected int, advice string) {
		t.Helper()
		want := fmt.Sprintf("the completion ring of rank 0 has cq_entries = %d, of which %d are reserved for operations that are not released and %d completions were not collected, this needs 3: %s, or open the session with more cq_entries",
			ring, reserved, uncollected, advice)
		if c := offer(); c.Reason != transfer.Quota || c.Text != want {
			t.Errorf("refused with %q, want %q", c.Text, want)
		}
	}
	for range 3 {
		if c := offer(); c.Status == transfer.Failed {
			t.Fatal(c.Text)
		}
	}
	says(9, 0, "wait for some of the operations")
	offer() // is answered once there is room
	for i := range uint64(3) {
		submit(&transfer.WithdrawOp{Target: i + 1})
	}
	// the ends of both, and the refusals
	says(0, 8, "collect completions (poll)")
	m.Step(1, transfer.CreditsReturned{Session: 1, N: 100})
	if c := offer(); c.Status == transfer.Failed {
		t.Errorf("refused with %q, and all was collected", c.Text)
	}
	if got := m.Snapshot().Sessions[0].Reserved; got != transfer.MostCompletions {
		t.Errorf("%d completions are reserved for one offer, want %d", got, transfer.MostCompletions)
	}
}

// TestWhoCollectsNothingIsEnded: as soon as a session has left so many answers uncollected.
func TestWhoCollectsNothingIsEnded(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1})
	for n := range 5000 {
		for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.WithdrawOp{Target: 100}}) {
			if end, ok := e.(transfer.EndSession); ok {
				if n != 4097 || end.Cause.Reason != transfer.Quota || end.Cause.Text != "4096 answers wait because the session does not collect its completions" {
					t.Errorf("after %d answers it was ended: %+v", n, end)
				}
				return
			}
		}
	}
	t.Error("the session goes on")
}

// TestTheLastCreditIsSaidToBe: whoever collects wakes the daemon then, as others may wait for what that gives back.
func TestTheLastCreditIsSaidToBe(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 2})
	user := uint64(0)
	last := func(want ...bool) {
		t.Helper()
		user++
		var got []bool
		for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: user, Op: &transfer.WithdrawOp{Target: 100}}) {
			if c, ok := e.(transfer.Complete); ok {
				got = append(got, c.Last)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("operation %d: the last credits are %v, want %v", user, got, want)
		}
	}
	last(false)
	last(true)
	last()
	for _, e := range m.Step(1, transfer.CreditsReturned{Session: 1, N: 1}) {
		if c, ok := e.(transfer.Complete); ok && (c.UserData != 3 || !c.Last) {
			t.Errorf("of what was owed came %+v", c)
		}
	}
	m.Step(1, transfer.CreditsReturned{Session: 1, N: 2})
	last(false)
}

// TestCreditsOfWhoIsGone: a client may give some back as its session ends.
func TestCreditsOfWhoIsGone(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1})
	for range 2 {
		m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.WithdrawOp{Target: 100}})
	}
	m.Step(1, transfer.SessionClosed{Session: 1})
	for _, e := range m.Step(1, transfer.CreditsReturned{Session: 1, N: 1}) {
		if c, ok := e.(transfer.Complete); ok {
			t.Errorf("it was told %+v", c)
		}
	}
}
