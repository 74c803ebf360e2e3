package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// far is a node whose engine watches keys at others, whom it names by their addresses.
type far struct {
	*watched
	t *testing.T
}

func newFar(t *testing.T) *far { return &far{newWatched(t, transfer.Config{}), t} }

// does says which addresses a step has dialed, to whom it sent, and how many operations ended.
func (f *far) does(ev transfer.Event) (dialed, sent []string, ended int) {
	for _, e := range f.m.Step(f.now, ev) {
		switch e := e.(type) {
		case transfer.Dial:
			dialed = append(dialed, e.Hint)
		case transfer.Send:
			sent = append(sent, e.Node)
			if k, ok := e.Msg.(*transfer.MsgKey); ok {
				_, _, n := f.does(transfer.PeerMsg{Node: e.Node, Epoch: e.Epoch, Msg: &transfer.MsgKeyAck{ID: k.ID}})
				ended += n
			}
		case transfer.Complete:
			ended++
			f.m.Step(f.now, transfer.CreditsReturned{Session: e.Session, N: 1})
		}
	}
	return dialed, sent, ended
}

func (f *far) watches(hint string) (dialed, sent []string, ended int) {
	f.user++
	return f.does(transfer.Submit{Session: 3, UserData: f.user, Op: &transfer.WatchOp{Key: []byte("k"), Token: watchToken, Peer: hint, Timeout: 600 * transfer.Second}})
}

// dials wants a watch to ask where that address leads.
func (f *far) dials(hint string) {
	f.t.Helper()
	if dialed, sent, _ := f.watches(hint); len(dialed) != 1 || dialed[0] != hint || len(sent) != 0 {
		f.t.Fatalf("a watch at %s dials %q and sends to %q, want it dialed", hint, dialed, sent)
	}
}

// knows wants a watch there to go to that node at once.
func (f *far) knows(hint, node string) {
	f.t.Helper()
	if dialed, sent, ended := f.watches(hint); len(dialed) != 0 || len(sent) != 1 || sent[0] != node || ended != 1 {
		f.t.Fatalf("a watch at %s dials %q, sends to %q and ends %d times, want it sent to %q", hint, dialed, sent, ended, node)
	}
}

// leads has the addresses answered.
func (f *far) leads(node string, hints ...string) {
	f.t.Helper()
	if _, _, ended := f.does(transfer.PeerUp{Node: node, Epoch: 1, Hints: hints}); node != "a" && ended != len(hints) {
		f.t.Fatalf("%q lead to %q, and %d watches end", hints, node, ended)
	}
}

// asksAgain has a watch ask once more for an address, since it is a while ago that it led there.
func (f *far) asksAgain(hint, node string) {
	f.t.Helper()
	f.dials(hint)
	f.leads(node, hint)
	f.now += 30 * transfer.Second
	f.dials(hint)
}

// TestOneNodeHasFewAddresses: clients can spell one address without end, and all of it is not kept.
func TestOneNodeHasFewAddresses(t *testing.T) {
	f := newFar(t)
	for i := range 10_000 {
		hint := fmt.Sprintf("10.0.0.5:%06d", i)
		f.dials(hint)
		f.leads("b", hint)
		f.knows(hint, "b")
		if n := f.m.Routes(); n > 16 {
			t.Fatalf("%d addresses are remembered of %d that led to one node", n, i+1)
		}
	}
	for i := range 900 { // each watch goes on
		hint := fmt.Sprintf("127.0.0.1:%06d", i)
		f.dials(hint)
		f.leads("a", hint)
		if n := f.m.Routes(); n > 32 {
			t.Fatalf("%d addresses are remembered, %d of this very node", n, i+1)
		}
	}
	f.does(transfer.PeerDown{Node: "b", Epoch: 1})
	if n := f.m.Routes(); n > 16 {
		t.Errorf("%d addresses are remembered after the only channel is gone", n)
	}
}

// TestAnAddressThatMovesIsFound, though the channel to where it led lasts, and though that was this very node.
func TestAnAddressThatMovesIsFound(t *testing.T) {
	f := newFar(t)
	for _, old := range []string{"b", "a"} {
		hint := "service-" + old + ":7650"
		f.dials(hint)
		f.leads(old, hint)
		f.now += 29 * transfer.Second
		if dialed, _, _ := f.watches(hint); len(dialed) != 0 {
			t.Errorf("an address that just led to %q is dialed", old)
		}
		f.now += transfer.Second
		f.dials(hint)
		f.leads("c", hint)
		f.knows(hint, "c")
	}
}

// TestAnAddressThatCannotBeAskedForLeadsWhereItLed: a channel that is up serves while new connections, or the name service, fail.
func TestAnAddressThatCannotBeAskedForLeadsWhereItLed(t *testing.T) {
	f := newFar(t)
	f.asksAgain("b.example:7650", "b")
	failed := transfer.DialFailed{Hint: "b.example:7650", Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "no such host"}}
	if _, sent, ended := f.does(failed); len(sent) != 1 || ended != 1 {
		t.Errorf("sent to %q, %d ended, want the watch sent to b", sent, ended)
	}
	f.knows("b.example:7650", "b")
	f.now += 30 * transfer.Second
	f.dials("b.example:7650")
	failed.Final = true
	if _, sent, ended := f.does(failed); len(sent) != 0 || ended != 1 {
		t.Errorf("sent to %q, %d ended, want the watch refused: the address may not be dialed any more", sent, ended)
	}
	f.dials("b.example:7650")
}

// TestWhereAnAddressLedGoesWithThePeer, also where somebody asks for the address again as its peer goes, and gives up.
func TestWhereAnAddressLedGoesWithThePeer(t *testing.T) {
	f := newFar(t)
	f.asksAgain("b.example:7650", "b")
	f.does(transfer.PeerDown{Node: "b", Epoch: 1})
	f.now += 600*transfer.Second - 1 // all that the watch has
	f.does(transfer.DialFailed{Hint: "b.example:7650", Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "refused"}})
	for _, later := range []transfer.Time{1, 600 * transfer.Second} { // when it would have been dialed once more
		f.now += later
		f.does(transfer.Tick{})
	}
	if n := f.m.Routes(); n != 0 {
		t.Errorf("%d addresses are remembered though nobody asks for them", n)
	}
}

// TestWhoGoesTakesNobodyAlong: others still wait for the address, which is dialed again, and are sent on.
func TestWhoGoesTakesNobodyAlong(t *testing.T) {
	f := newFar(t)
	f.dials("10.0.0.5:1")
	f.watches("10.0.0.5:1")
	f.does(transfer.DialFailed{Hint: "10.0.0.5:1", Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "refused"}})
	f.cancel(3)
	f.now += transfer.Second
	if dialed, _, _ := f.does(transfer.Tick{}); len(dialed) != 1 {
		t.Errorf("%q are dialed", dialed)
	}
	f.leads("b", "10.0.0.5:1")
}

// TestWhoWaitsForAnAddressGoesOnWithItsNode: what an address led to is asked anew after a while. Whoever waits for the answer when that node's
// channel is lost is asked for over the next one, whoever opens that, and need not wait until the address answers.
func TestWhoWaitsForAnAddressGoesOnWithItsNode(t *testing.T) {
	f := newFar(t)
	f.asksAgain("10.0.0.5:7001", "b")
	if dialed, sent, ended := f.does(transfer.PeerDown{Node: "b", Epoch: 1}); len(dialed)+len(sent)+ended != 0 {
		t.Fatalf("without the channel: dialed %q, sent to %q, %d ended", dialed, sent, ended)
	}
	if _, sent, ended := f.does(transfer.PeerUp{Node: "b", Epoch: 2}); len(sent) != 1 || sent[0] != "b" || ended != 1 {
		t.Errorf("b is back, and the watch that waits for its address is sent to %q, %d ended", sent, ended)
	}
}
