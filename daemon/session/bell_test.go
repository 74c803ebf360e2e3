package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhoWaitsForOneThingIsWokenForIt: at once, whatever else the driver has to do; who waits for several with Ring.
func TestWhoWaitsForOneThingIsWokenForIt(t *testing.T) {
	n := start(t, nil)
	n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s })
	c := n.dial(sessiontest.Options{CQ: 8})
	id := transfer.SessionID(c.Welcome.Session)
	op := &transfer.DropOp{Key: []byte("k"), Token: token, Timeout: 1}
	for range 2 {
		_, err := c.Submit(op)
		noErr(t, err)
	}
	wait(n, func(s transfer.Submit) bool { return s.UserData == 2 })
	rings := func() uint64 { return n.Sessions()[0].Rings }
	n.completing.Lock()
	defer n.completing.Unlock()
	for i, want := range []struct{ before, after uint64 }{{0, 1}, {2, 2}} {
		for c.Rings.Arm(); ; { // asleep
			if _, _, ok := c.Rings.Next(); !ok {
				break
			}
		}
		c.Rings.Arm()
		n.Server.Complete(transfer.Complete{Session: id, UserData: uint64(i + 1), Status: transfer.Done})
		if got := rings(); got != want.before {
			t.Errorf("completion %d: rung %d times at once, want %d", i+1, got, want.before)
		}
		n.Server.Ring()
		if got := rings(); got != want.after {
			t.Errorf("completion %d: rung %d times after Ring, want %d", i+1, got, want.after)
		}
	}
}

// TestRouse: a client that sleeps for one operation alone is woken before it completes, and not again unless it has gone back to sleep.
func TestRouse(t *testing.T) {
	n := start(t, nil)
	n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s })
	c := n.dial(sessiontest.Options{CQ: 8})
	id := transfer.SessionID(c.Welcome.Session)
	op := &transfer.DropOp{Key: []byte("k"), Token: token, Timeout: 1}
	rings := func() uint64 { return n.Sessions()[0].Rings }
	submit := func() uint64 {
		t.Helper()
		user, err := c.Submit(op)
		noErr(t, err)
		wait(n, func(s transfer.Submit) bool { return s.UserData == user })
		return user
	}
	first := submit()
	n.completing.Lock()
	defer n.completing.Unlock()
	rouse := func(what string, s transfer.SessionID, user, want uint64) {
		t.Helper()
		before := rings()
		n.Server.Rouse(transfer.Rouse{Session: s, UserData: user})
		if got := rings() - before; got != want {
			t.Errorf("%s: rung %d times, want %d", what, got, want)
		}
	}
	rouse("awake", id, first, 0)
	c.Rings.Arm()
	rouse("nobody's session", id+1, first, 0)
	rouse("another operation", id, first+1, 0)
	rouse("asleep", id, first, 1)
	rouse("on its way", id, first, 0)
	c.Rings.Arm()
	rouse("asleep again", id, first, 1)
	n.Server.Complete(transfer.Complete{Session: id, UserData: first, Status: transfer.Done})
	if got := rings(); got != 2 {
		t.Errorf("rung %d times for what it was roused for, want 2", got)
	}
	c.Rings.Next()
	a, b := submit(), submit()
	c.Rings.Arm()
	rouse("two are under way", id, a, 0)
	rouse("two are under way", id, b, 0)
}
