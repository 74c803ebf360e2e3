package session_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestBreaches: whoever breaks the protocol is told so and goes; everybody else stays.
func TestBreaches(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s }) // operations stay open
		honest := n.dial(sessiontest.Options{Engine: "honest"})
		for name, b := range map[string]struct {
			do   func(c *sessiontest.Client)
			says string
		}{
			"tail too far":    {func(c *sessiontest.Client) { c.Rings.Corrupt(1025, 0) }, "sq_tail 1025"},
			"tail moved back": {func(c *sessiontest.Client) { c.Rings.Corrupt(^uint32(0), 0) }, "sq_tail"},
			"head too far": {func(c *sessiontest.Client) {
				c.Rings.Corrupt(0, 5)
				c.Rings.SubmitRaw(ring.SQE{UserData: 1, Op: ring.OpSeal, Target: 3})
			}, "cq_head 5"},
			"record out of range": {func(c *sessiontest.Client) {
				c.Rings.SubmitRaw(ring.SQE{UserData: 1, Op: ring.OpOffer, RecOff: 8<<20 - 8, RecLen: 16})
			}, "record of 16 bytes"},
			"record too long": {func(c *sessiontest.Client) {
				c.Rings.SubmitRaw(ring.SQE{UserData: 1, Op: ring.OpOffer, RecLen: ^uint32(0)})
			}, "record of 4294967295 bytes"},
			"record misaligned": {func(c *sessiontest.Client) {
				c.Rings.SubmitRaw(ring.SQE{UserData: 1, Op: ring.OpOffer, RecOff: 4, RecLen: 80})
			}, "8-byte aligned"},
			"no user_data":  {func(c *sessiontest.Client) { c.Rings.SubmitRaw(ring.SQE{}) }, "user_data is 0x0"},
			"top user_data": {func(c *sessiontest.Client) { c.Rings.SubmitRaw(ring.SQE{UserData: 1 << 63}) }, "user_data is 0x8000"},
			"user_data twice": {func(c *sessiontest.Client) {
				for range 2 {
					c.Rings.SubmitRaw(ring.SQE{UserData: 6, Op: ring.OpSeal, Target: 3})
				}
			}, "not released yet"},
		} {
			t.Run(name, func(t *testing.T) {
				c := n.dial(sessiontest.Options{Engine: name})
				b.do(c)
				noErr(t, c.Wake())
				cause, err := c.Bye()
				noErr(t, err)
				if cause.Reason != transfer.Invalid || !strings.Contains(cause.Text, b.says) {
					t.Errorf("told %+v, want %q", cause, b.says)
				}
				if c.Rings.Closed() != uint32(transfer.Invalid) {
					t.Errorf("the closed word is %d", c.Rings.Closed())
				}
				id := transfer.SessionID(c.Welcome.Session)
				if closed := wait(n, func(e transfer.SessionClosed) bool { return e.Session == id }); closed.Cause != cause {
					t.Errorf("the machine is told %+v, the client %+v", closed.Cause, cause)
				}
			})
		}
		n.empties(1)
		noErr(t, honest.Ping())
	})
}

// TestPunchedRings: a client can take the pages of ring_c away, though not its size.
func TestPunchedRings(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		c := n.dial(sessiontest.Options{})
		if err := sys.Truncate(c.RingC, 0); err == nil {
			t.Fatal("ring_c can be truncated")
		}
		if err := sys.AddSeals(c.RingC, sys.SealWrite); err == nil {
			t.Fatal("seals can be added to ring_c")
		}
		for i := range 5 {
			_, err := c.Submit(nil)
			noErr(t, err)
			done, err := c.Wait()
			noErr(t, err)
			if done.UserData != uint64(i)+1 {
				t.Fatalf("completion %+v", done)
			}
		}
		noErr(t, sys.PunchHole(c.RingC, 0, int64(c.Welcome.RingCBytes)))
		_ = c.Wake()
		if cause, err := c.Bye(); err != nil || cause.Reason != transfer.Invalid {
			t.Errorf("told %+v, %v", cause, err)
		}
		n.empty()
	})
}

// TestScribbling lets clients write random bytes into ring_c while it is read. The daemon must neither fall nor serve anybody
// else worse.
func TestScribbling(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		honest := n.dial(sessiontest.Options{Engine: "honest"})
		rounds := 60
		if testing.Short() {
			rounds = 10
		}
		for seed := range uint64(rounds) {
			r := rand.New(rand.NewPCG(seed, 1))
			c := n.dial(sessiontest.Options{Engine: "scribbler", SQ: 16, CQ: 16, Records: 1 << 16})
			mem := c.Bytes()
			for i := range 200 {
				switch at := r.IntN(len(mem) / 8); r.IntN(5) {
				case 0: // the index page
					binary.LittleEndian.PutUint32(mem[r.IntN(6)*64:], uint32(r.IntN(40)))
				case 1: // an entry that may make sense
					e, rec := sessiontest.Encode(everyOp()[r.IntN(10)])
					e.UserData = uint64(seed)<<32 | uint64(i) + 1
					for range r.IntN(3) {
						rec = append(rec, 0)[:max(len(rec)-r.IntN(20), 0)]
					}
					_, _ = c.Rings.Submit(e, rec)
				case 2:
					binary.LittleEndian.PutUint64(mem[at*8:], r.Uint64())
				case 3:
					c.Rings.Next()
				case 4:
					_ = c.Wake()
				}
				if c.Rings.Closed() != 0 {
					break
				}
			}
			if seed%2 == 0 {
				_ = c.Close()
			} else {
				c.Kill()
			}
			noErr(t, honest.Ping())
			ud, err := honest.Submit(nil)
			noErr(t, err)
			_, _, err = honest.WaitFor(ud)
			noErr(t, err)
		}
		noErr(t, honest.Close())
		n.empty()
	})
}

// TestFlood: a client that asks and never reads its answers is let go.
func TestFlood(t *testing.T) {
	n := start(t, func(c *session.Config) { c.Patience = 50 * time.Millisecond })
	c := n.dial(sessiontest.Options{Timeout: patience})
	for {
		if _, err := c.Send(ring.CtlPing, nil); err != nil {
			break // it stopped reading
		}
	}
	id := transfer.SessionID(c.Welcome.Session)
	closed := wait(n, func(e transfer.SessionClosed) bool { return e.Session == id })
	if !strings.Contains(closed.Cause.Text, "answer") {
		t.Errorf("closed because of %+v", closed.Cause)
	}
	n.empty()
}

// blocked dials a client that has made writes to its eventfd block, by means of the open file that it shares with the daemon.
func blocked(n *node) *sessiontest.Client {
	n.t.Helper()
	c := n.dial(sessiontest.Options{Engine: "hostile"})
	c.Rings.Arm()
	noErr(n.t, sys.SetNonblock(c.CQEvent, false))
	full := binary.NativeEndian.AppendUint64(nil, ^uint64(0)-1)
	if k, err := syscall.Write(c.CQEvent, full); k != 8 {
		n.t.Fatalf("fill the count: %v", err)
	}
	n.t.Cleanup(func() { noErr(n.t, sys.SetNonblock(c.CQEvent, true)) }) // so that Kill works
	return c
}

// TestBlockedWakeUp: who wakes such a client comes back, and its session ends.
func TestBlockedWakeUp(t *testing.T) {
	n := start(t, nil)
	c := blocked(n)
	honest := n.dial(sessiontest.Options{Engine: "honest"})
	n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: 9, Status: transfer.Done})
	cause, err := c.Bye()
	noErr(t, err)
	if !strings.Contains(cause.Text, "blocks its completion eventfd") {
		t.Errorf("told %+v", cause)
	}
	noErr(t, honest.Ping())
	n.empties(1)
}

// TestBlockedWakeUpsOfOneUser: after the first, its clients hold up nobody but themselves.
func TestBlockedWakeUpsOfOneUser(t *testing.T) {
	n := start(t, nil)
	first := blocked(n)
	n.Complete(transfer.Complete{Session: transfer.SessionID(first.Welcome.Session), UserData: 9, Status: transfer.Done})
	if _, err := first.Bye(); err != nil {
		t.Fatal(err)
	}
	free := 0
	for range 5 { // one may be set free just before it is looked at
		c := blocked(n)
		n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: 9, Status: transfer.Done})
		if sys.EventfdFull(c.CQEvent) {
			free++ // nothing has been written yet, and nobody waits for it
		}
		cause, err := c.Bye()
		noErr(t, err)
		if !strings.Contains(cause.Text, "blocks its completion eventfd") {
			t.Errorf("told %+v", cause)
		}
	}
	if free == 0 {
		t.Error("who wakes such a client waits until it is set free")
	}
	honest := n.dial(sessiontest.Options{Engine: "honest"})
	honest.Rings.Arm()
	n.Complete(transfer.Complete{Session: transfer.SessionID(honest.Welcome.Session), UserData: 9, Status: transfer.Done})
	for count := uint64(0); count == 0; {
		var err error
		count, err = sys.EventfdRead(honest.CQEvent)
		noErr(t, err)
	}
	n.empties(1)
}

// TestTheLastWakeUpStays: the session's end wakes an honest client of such a user, too, and is not taken back.
func TestTheLastWakeUpStays(t *testing.T) {
	n := start(t, nil)
	first := blocked(n)
	n.Complete(transfer.Complete{Session: transfer.SessionID(first.Welcome.Session), UserData: 9, Status: transfer.Done})
	if _, err := first.Bye(); err != nil {
		t.Fatal(err)
	}
	for range 50 { // where it can be taken back, it is now and then
		c := n.dial(sessiontest.Options{Engine: "honest"})
		n.EndSession(transfer.EndSession{Session: transfer.SessionID(c.Welcome.Session), Cause: transfer.Cause{Reason: transfer.Closed, Text: "enough"}})
		if _, err := c.Bye(); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := c.Receive(0); !errors.Is(err, io.EOF) { // the very end
			t.Fatal(err)
		}
		if count, err := sys.EventfdRead(c.CQEvent); count == 0 || err != nil {
			t.Fatalf("its eventfd says %d, %v", count, err)
		}
	}
}

// TestCloseWithBlockedWakeUp: the server's end comes while such a client is being woken.
func TestCloseWithBlockedWakeUp(t *testing.T) {
	n := start(t, nil)
	c := blocked(n)
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: 9, Status: transfer.Done})
	}()
	noErr(t, n.Close())
	<-woken
}

// TestHostileCloses cuts the connection at every stage.
func TestHostileCloses(t *testing.T) {
	n := start(t, nil)
	for i := range 40 {
		c := n.dial(sessiontest.Options{SQ: 16, CQ: 16, Records: 1 << 16})
		if i%8 >= 1 {
			region, _, err := c.Alloc(8192)
			noErr(t, err)
			if i%8 >= 3 {
				_, _ = c.Send(ring.CtlUnregister, ring.Append(nil, &ring.Unregister{Region: uint64(region)}))
			}
		}
		for range i % 5 {
			_, err := c.Submit(&transfer.SealOp{Target: 1})
			noErr(t, err)
		}
		if i%8 >= 5 {
			_, _ = c.Send(ring.CtlBye, nil)
		}
		c.Kill()
		id := transfer.SessionID(c.Welcome.Session)
		wait(n, func(e transfer.SessionClosed) bool { return e.Session == id })
	}
	n.empty()
	if n.Pinned() != 0 {
		t.Errorf("%d bytes are still registered", n.Pinned())
	}
	// Nothing of a session is reported after its end.
	n.mu.Lock()
	defer n.mu.Unlock()
	ended := map[transfer.SessionID]bool{}
	for _, ev := range n.events {
		switch ev := ev.(type) {
		case transfer.SessionClosed:
			if ended[ev.Session] {
				t.Errorf("session %d closed twice", ev.Session)
			}
			ended[ev.Session] = true
		case transfer.Submit:
			if ended[ev.Session] {
				t.Errorf("a submission of session %d after its end", ev.Session)
			}
		}
	}
}
