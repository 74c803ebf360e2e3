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
