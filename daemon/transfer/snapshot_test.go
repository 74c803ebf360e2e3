package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestHoldsOfWhoWaits: what gets that wait for an item hold is told apart exactly, also where a list has positions without a block.
func TestHoldsOfWhoWaits(t *testing.T) {
	e := newEnds(t, nil)
	e.open(1, send)
	rx := e.open(2, recv)
	gap := blocksOf(0, 2*block)
	gap[0].IDs[0] = layout.NoBlock
	e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Room: 2 * block, Timeout: 1e9, Blocks: gap})
	e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Seq: 1, Room: 2 * block, Timeout: 1e9,
		Blocks: []layout.BlockList{{NTokens: 2 * block, IDs: layout.Adjacent(4, 2)}}})
	s := e.m.Snapshot()
	if s.Seeking != 2 || s.HoldsExclusive != 3 || s.HoldsSeeking != s.HoldsExclusive {
		t.Errorf("%d gets wait with %d of %d blocks that are held, want 2 with all 3", s.Seeking, s.HoldsSeeking, s.HoldsExclusive)
	}
}

// TestWhoReachesForAnItemWaitsForOne: a get whose home is not connected is listed like the others that wait, as it is counted. There can be
// many of them.
func TestWhoReachesForAnItemWaitsForOne(t *testing.T) {
	e := newEnds(t, nil)
	rx := e.open(1, &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "addr"})
	e.submit(1, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Room: block, Timeout: 1e9, Blocks: blocksOf(0, block)})
	if s := e.m.Snapshot(); s.Seeking != 1 || len(s.Transfers) != 1 || s.Transfers[0].State != "seeking" {
		t.Errorf("%d gets wait, of %+v; want one, which is shown as seeking", s.Seeking, s.Transfers)
	}
}

// TestAgesGoOn: also of a machine that takes no step, because it only waits. A time before its last step counts as that step's.
func TestAgesGoOn(t *testing.T) {
	e := idsOfSessions(t, nil)
	e.offer(1, "k", 0, 1)
	e.take(2, "other", "", 0, 1)
	const left = 5 * transfer.Second
	for after, want := range map[transfer.Time]struct{ age, left transfer.Time }{
		-1: {0, left}, 0: {0, left}, transfer.Second: {transfer.Second, left - transfer.Second}, left + 1: {left + 1, 0},
	} {
		s := e.m.SnapshotAt(e.now + after)
		if o := s.Offers; len(o) != 1 || o[0].Age != want.age || o[0].Lease != want.left {
			t.Errorf("after %d the offer is %+v, want %+v", after, o, want)
		}
		for _, x := range s.Transfers {
			if x.Age != want.age || x.Deadline != want.left {
				t.Errorf("after %d an end of the take is %+v, want %+v", after, x, want)
			}
		}
		if len(s.Transfers) == 0 {
			t.Error("there is no take")
		}
	}
}

// TestLimitsAreShownToWhomTheyBind: ranks have offers, and ends of pipes have items.
func TestLimitsAreShownToWhomTheyBind(t *testing.T) {
	for role, want := range map[transfer.Role][]string{
		transfer.Worker:   {"limits.inflight", "limits.offers", "limits.block_ids"},
		transfer.Endpoint: {"limits.inflight", "limits.items", "limits.block_ids", "limits.pipes"},
	} {
		m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
		m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: role, Credits: 100})
		var keys []string
		for _, q := range m.Snapshot().Sessions[0].Quotas {
			keys = append(keys, q.Key)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("a %s is shown %q, want %q", role, keys, want)
		}
	}
}
