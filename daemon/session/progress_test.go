package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func TestProgress(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		c := n.dial(sessiontest.Options{})
		id := transfer.SessionID(c.Welcome.Session)
		reached := func(v uint64) {
			t.Helper()
			wait(n, func(p transfer.Progress) bool { return p.Session == id && p.Value >= v })
		}
		// Waited for, then there: the client rings.
		n.WatchProgress(transfer.WatchProgress{Session: id, Value: 5 << 16})
		if c.Rings.WaitedFor() != 5<<16 {
			t.Fatalf("the client is told to ring at %#x", c.Rings.WaitedFor())
		}
		noErr(t, c.Progress(4<<16))
		noErr(t, c.Progress(5<<16|3))
		reached(5<<16 | 3)
		if count[transfer.Progress](n) != 1 {
			t.Errorf("reported %d times", count[transfer.Progress](n))
		}
		eventually(t, func() bool { return c.Rings.WaitedFor() == 0 }, "the client is still told to ring at %#x", c.Rings.WaitedFor)

		// There already.
		n.WatchProgress(transfer.WatchProgress{Session: id, Value: 5 << 16})
		eventually(t, func() bool { return count[transfer.Progress](n) == 2 }, "%d reports", func() int { return count[transfer.Progress](n) })

		// Written by a stream: nobody rings.
		n.WatchProgress(transfer.WatchProgress{Session: id, Value: 6 << 16})
		c.Rings.Progress(6<<16 | 1)
		reached(6<<16 | 1)

		// Not waited for any more.
		n.WatchProgress(transfer.WatchProgress{Session: id, Value: 9 << 16})
		n.WatchProgress(transfer.WatchProgress{Session: id})
		if c.Rings.WaitedFor() != 0 {
			t.Error("the client is still told to ring")
		}
		noErr(t, c.Progress(9<<16))
		// It never moves back, whatever the client writes.
		noErr(t, c.Progress(1))
		n.WatchProgress(transfer.WatchProgress{Session: id, Value: 6 << 16})
		eventually(t, func() bool { return count[transfer.Progress](n) == 4 }, "%d reports", func() int { return count[transfer.Progress](n) })
		n.WatchProgress(transfer.WatchProgress{Session: id + 1, Value: 1}) // nobody
	})
}

func TestLayers(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{Layers: 8})
	id := transfer.SessionID(c.Welcome.Session)
	ready := func(k uint32) func() bool {
		return func() bool {
			user, layers := c.Rings.Layer(3)
			return user == 77 && layers >= k
		}
	}
	for k := uint32(1); k <= 4; k++ {
		go n.LayerReady(transfer.LayerReady{Session: id, Slot: 3, UserData: 77, Ready: k})
		noErr(t, c.Sleep(ready(k))) // is woken as for a completion
	}
	n.Granted(transfer.Granted{Session: id, Slot: 2, UserData: 78})
	if !c.Rings.Granted(2, 78) || c.Rings.Granted(3, 77) {
		t.Errorf("granted are the take that was: %v, and the other: %v", c.Rings.Granted(2, 78), c.Rings.Granted(3, 77))
	}
	n.LayerReady(transfer.LayerReady{Session: id, Slot: 8, UserData: 77}) // the machine's mistake, and survived
	n.LayerReady(transfer.LayerReady{Session: id + 1, Slot: 1})
}

func TestHeartbeat(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	first := c.Rings.Heartbeat()
	if first == 0 {
		t.Error("no heartbeat from the beginning")
	}
	eventually(t, func() bool { return c.Rings.Heartbeat() > first }, "heartbeat stays at %d", c.Rings.Heartbeat)
}
