package daemon

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestEndedTakesAreNotInFlight: what has ended is remembered for a while, and listed, and counts no more.
func TestEndedTakesAreNotInFlight(t *testing.T) {
	end := func(e transfer.End, state string) transfer.TransferInfo {
		return transfer.TransferInfo{End: e, State: state}
	}
	m := transfer.Snapshot{Seeking: 1, Transfers: []transfer.TransferInfo{
		end(transfer.Consumer, "asking"), end(transfer.Consumer, "ended"), end(transfer.Consumer, "seeking"),
		end(transfer.Producer, "moving"), end(transfer.Producer, "parked"), end(transfer.Producer, "ended"),
	}}
	if transfers, takes := inFlight(&m); transfers != 3 || takes != 1 {
		t.Errorf("%d ends of transfers, %d takes; want 3 and 1", transfers, takes)
	}
}

// TestLeasesRunWhileNothingHappens: what is left of an offer's lease and of a take's time, and how old they are, is so when it is asked for,
// not when the daemon last had something to do.
func TestLeasesRunWhileNothingHappens(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	e := n.join("e", 2)
	for _, op := range []transfer.Op{
		&transfer.OfferOp{Key: []byte("k"), Token: token(), Consumers: 1, Sealed: true, Lease: 60e9, Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{0}}}},
		&transfer.TakeOp{Key: []byte("other"), Token: token(), TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 60e9, Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{1}}}},
	} {
		if _, err := e.Submit(op); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both are there", func() bool {
		return len(get[[]admin.Offer](n, "offers")) == 1 && len(get[[]admin.Transfer](n, "transfers")) > 0
	})
	offer, take := get[[]admin.Offer](n, "offers")[0], get[[]admin.Transfer](n, "transfers")[0]
	eventually(t, "time passes for both", func() bool {
		later, still := get[[]admin.Offer](n, "offers")[0], get[[]admin.Transfer](n, "transfers")[0]
		return later.Age > offer.Age && later.Lease < offer.Lease && still.Age > take.Age && still.Deadline < take.Deadline
	})
}

// TestRanks: a rank is shown of workers alone.
func TestRanks(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	for role, ranked := range map[transfer.Role]bool{transfer.Worker: true, transfer.Scheduler: false, transfer.Endpoint: false} {
		c, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: role.String(), Role: role})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Kill)
		for _, s := range get[[]admin.Session](n, "sessions") {
			if s.Engine == role.String() && (s.Rank != nil) != ranked {
				t.Errorf("%s: rank %v is shown", role, s.Rank)
			}
		}
	}
}

// TestConnectedSessions: those that are connected count, and not what a sender that is gone has left to be received.
func TestConnectedSessions(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	count := func(want int) bool {
		s, err := view{n.Daemon}.metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Sessions == want && get[admin.Status](n, "status").Counts.Sessions == want
	}
	sender, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: "e", Role: transfer.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Kill)
	bind, err := sender.Submit(&transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 4096, Linger: 3600e9})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Submit(&transfer.PutOp{Target: bind, Form: transfer.MatchNext, Meta: make([]byte, 8)}); err != nil {
		t.Fatal(err)
	}
	pipe := func(state string, items int) bool {
		all := get[[]admin.Pipe](n, "pipes")
		return len(all) == 1 && all[0].State == state && all[0].Items == items
	}
	eventually(t, "the item is there", func() bool { return pipe("open", 1) })
	if !count(1) {
		t.Error("the sender is not counted")
	}
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sender is gone and its item is left", func() bool { return pipe("lingering", 1) })
	eventually(t, "no session is counted", func() bool { return count(0) })
	if n := get[admin.Status](n, "status").Counts.Orphaned; n != 1 {
		t.Errorf("one session is gone of which something is left, and %d are counted", n)
	}
}

// TestGetsThatWaitAreNoTakes: a receiver that asks for items ahead takes nothing until there are some.
func TestGetsThatWaitAreNoTakes(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	end, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: "e", Role: transfer.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end.Kill)
	bind, err := end.Submit(&transfer.BindOp{Kind: transfer.BindRecv, Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := end.Submit(&transfer.GetOp{Target: bind, Match: transfer.MatchNext, Timeout: 60e9}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the get waits", func() bool {
		m, err := view{n.Daemon}.look(t.Context())
		return err == nil && m.Seeking == 1
	})
	s, err := view{n.Daemon}.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Takes != 0 || s.Transfers != 0 {
		t.Errorf("%d takes and %d transfers are shown, want none", s.Takes, s.Transfers)
	}
}
