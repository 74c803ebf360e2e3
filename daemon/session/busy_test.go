package session_test

import (
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestCreditsFoundByThePoller reach the machine at once, also where the session has to collect more before anything of it is read.
func TestCreditsFoundByThePoller(t *testing.T) {
	var queue []transfer.Event // until Flush
	var mu sync.Mutex
	n := start(t, func(c *session.Config) {
		events := c.Events
		c.Queue = func(ev transfer.Event) {
			mu.Lock()
			defer mu.Unlock()
			queue = append(queue, ev)
		}
		c.Flush = func() {
			mu.Lock()
			defer mu.Unlock()
			for _, ev := range queue {
				events(ev)
			}
			queue = nil
		}
	})
	n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s })
	const entries, running, foreign = 16, 15, 3
	c := n.dial(sessiontest.Options{SQ: 64, CQ: entries})
	id := transfer.SessionID(c.Welcome.Session)
	for range running {
		_, err := c.Submit(&transfer.SealOp{Target: 1})
		noErr(t, err)
	}
	eventually(t, func() bool { return count[transfer.Submit](n) == running }, "%d are read", func() int { return count[transfer.Submit](n) })
	for range foreign {
		n.Complete(transfer.Complete{Session: id, Status: transfer.Done})
	}
	_, err := c.Wait()
	noErr(t, err)
	e, rec := sessiontest.Encode(&transfer.SealOp{Target: 1})
	e.UserData = 100
	if _, err := c.Rings.Submit(e, rec); err != nil {
		t.Fatal(err)
	}
	n.Visit()
	if !n.Stalls(id) || count[transfer.CreditsReturned](n) != 1 {
		t.Errorf("stalls: %v; credits are back %d times, want once", n.Stalls(id), count[transfer.CreditsReturned](n))
	}
}

// TestATurnEndsWithARefusal: a client whose long records are refused, of which it may submit any number, holds up others by no more than one of
// them in each round of the poller. All of them are answered.
func TestATurnEndsWithARefusal(t *testing.T) {
	n := start(t, nil)
	const published, long = 20, 8 << 20
	c := n.dial(sessiontest.Options{SQ: 64, Records: long})
	eventually(t, c.Rings.Asleep, "asleep: %v", c.Rings.Asleep) // so that only visits read
	for user := range uint64(published) {
		c.Rings.SubmitRaw(ring.SQE{UserData: user + 1, Op: ring.OpNop, RecLen: long}) // all in the same place
	}
	for round := range uint32(3) {
		n.Visit()
		if read := n.Sessions()[0].SQHead; read != round+1 {
			t.Fatalf("after %d rounds %d are read", round+1, read)
		}
	}
	noErr(t, c.Wake())
	for range published {
		if done, err := c.Wait(); err != nil || transfer.Reason(done.Reason) != transfer.Invalid {
			t.Fatalf("%+v, %v", done, err)
		}
	}
}

// TestWhoComesWhileThePollerIsAwake is read by it at once, before anything else tells the poller of what it brings.
func TestWhoComesWhileThePollerIsAwake(t *testing.T) {
	n := start(t, func(c *session.Config) { c.PollMode, c.Spin = "busy", time.Hour })
	first := n.dial(sessiontest.Options{Engine: "first"})
	eventually(t, func() bool { return !first.Rings.Asleep() }, "asleep: %v", first.Rings.Asleep)
	for range 100 {
		c := n.dial(sessiontest.Options{})
		user, err := c.Submit(&transfer.OfferOp{Key: []byte("k"), Token: token, Consumers: 1, Lease: 1e9})
		noErr(t, err)
		_, _, err = c.WaitFor(user)
		noErr(t, err)
		noErr(t, c.Close())
	}
}
