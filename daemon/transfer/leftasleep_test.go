package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// What a daemon that is about to end leaves to the next one has not ended when a rank gives its memory up, and the next daemon would carry
// it out with whatever the memory holds by then. So this one does not say that the memory is free.
func TestMemoryIsNotGivenBackUnderWhatIsLeftToTheNextDaemon(t *testing.T) {
	offer := func(s transfer.SessionID, user uint64) transfer.Submit {
		return transfer.Submit{Session: s, UserData: user, Op: &transfer.OfferOp{
			Key: []byte("k"), Token: []byte("0123456789abcdef"), Blocks: someBlocks(0, 1), Lease: 1000, Sealed: true}}
	}
	const worker, other, scheduler = 1, 2, 3
	for name, c := range map[string]struct {
		left  []transfer.SessionID
		ended bool // another session was told to go already, so ends are not reported any more
		free  bool
	}{
		"nothing":               {free: true},
		"the rank's own":        {left: []transfer.SessionID{worker}},
		"the scheduler's":       {left: []transfer.SessionID{scheduler}},
		"another rank's":        {left: []transfer.SessionID{other}, free: true},
		"ends without a report": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := engineOn(t)
			m.Step(2, transfer.Drain{Stop: true})
			for i, s := range c.left {
				if e := m.Step(3, offer(s, uint64(i)+1)); len(e) != 0 {
					t.Fatalf("what is left to the next daemon is answered: %v", e)
				}
			}
			if c.ended {
				m.Step(3, transfer.SessionClosed{Session: other, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "stopping"}})
			}
			free := false
			for _, e := range m.Step(4, transfer.RegionInvalidated{Session: worker, Region: 1}) {
				if _, ok := e.(transfer.RegionDrained); ok {
					free = true
				}
			}
			if free != c.free {
				t.Errorf("the memory is said to be free: %v, want %v", free, c.free)
			}

			// What comes from now on fails, as it would without a restart: by then the memory may be back.
			for _, s := range []transfer.SessionID{worker, scheduler} {
				refused := false
				for _, e := range m.Step(5, offer(s, 9)) {
					end, ok := e.(transfer.Complete)
					refused = refused || ok && end.UserData == 9 && end.Status == transfer.Failed && end.Reason == transfer.Unavailable
				}
				if !refused && !c.ended {
					t.Errorf("session %d may offer blocks without memory", s)
				}
			}
		})
	}
}
