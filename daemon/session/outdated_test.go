package session_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// late submits something of which the daemon does not hear before the client rings. It returns the user_data.
func late(t *testing.T, c *sessiontest.Client, user uint64, op transfer.Op) uint64 {
	t.Helper()
	e, rec := sessiontest.Encode(op)
	e.UserData = user
	_, err := c.Rings.Submit(e, rec)
	noErr(t, err)
	return user
}

// TestWhatIsReadLateIsAboutTheRanksOfBefore: when another process has come for a rank since a scheduler submitted something, the machine is told that
// it is of before. What is submitted after that is not, nor is what names no rank's blocks.
func TestWhatIsReadLateIsAboutTheRanksOfBefore(t *testing.T) {
	n := start(t, nil)
	offer := &transfer.OfferOp{Key: []byte("k"), Token: token, Consumers: 1}
	take := &transfer.TakeOp{Key: []byte("k"), Token: token, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 1}
	var scheduler, other *sessiontest.Client
	for tries := 0; ; tries++ { // a reader that was not asleep yet may have read it
		engine := fmt.Sprint("e", tries)
		scheduler = n.dial(sessiontest.Options{Engine: engine, Instance: "i", Role: transfer.Scheduler})
		other = n.dial(sessiontest.Options{Engine: "other" + engine, Instance: "i", Role: transfer.Scheduler})
		n.dial(worker(engine, "i", 0))
		late(t, scheduler, 1, offer)
		late(t, scheduler, 2, take)
		late(t, scheduler, 3, &transfer.WatchOp{Key: []byte("k"), Token: token, Timeout: 1})
		late(t, other, 1, offer)
		n.dial(worker(engine, "i", 1))
		if _, head, _, _ := scheduler.Rings.Indices(); head == 0 {
			break
		}
		if tries == 20 {
			t.Fatal("all was read at once")
		}
	}
	late(t, scheduler, 4, offer)
	late(t, scheduler, 5, take)
	noErr(t, scheduler.Wake())
	noErr(t, other.Wake())
	submitted := func(c *sessiontest.Client, user uint64) transfer.Op {
		return wait(n, func(s transfer.Submit) bool { return uint64(s.Session) == c.Welcome.Session && s.UserData == user }).Op
	}
	for user, before := range map[uint64]bool{1: true, 2: true, 4: false, 5: false} {
		again := false
		switch in := submitted(scheduler, user).(type) {
		case *transfer.OfferOp:
			again = in.Again
		case *transfer.TakeOp:
			again = in.Again
		}
		if again != before {
			t.Errorf("operation %d is of before: %v, want %v", user, again, before)
		}
	}
	if submitted(other, 1).(*transfer.OfferOp).Again {
		t.Error("what another engine's scheduler submitted is said to be about a rank of before")
	}
}

// TestWhatWasNotReadIsRemembered: nor is it about the other process when the daemon goes before it has read it, and its scheduler sends it again.
func TestWhatWasNotReadIsRemembered(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	options := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
	asked, idle := n.dial(options), n.dial(options)
	late(t, asked, 1, &transfer.OfferOp{Key: []byte("k"), Token: token, Consumers: 1})
	n.dial(worker("e", "i", 0))
	l.kill(n)
	n = l.start(nil)
	if !n.said(n.dial(again(options, asked))).Changed {
		t.Error("a scheduler whose ring was not read is not remembered")
	}
	if n.said(n.dial(again(options, idle))).Changed {
		t.Error("a scheduler that submitted nothing is remembered")
	}
}
