package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAPieceOfAllRanksFitsIntoAGrant: ranks that offer for themselves are granted by one message, and a peer takes no more than so many
// ids in one. What the others have added counts, and only as the same piece.
func TestAPieceOfAllRanksFitsIntoAGrant(t *testing.T) {
	const more = layout.MaxIDs/2 + 1
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }})
	l := arena(t, 2*more)
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		m.Step(1, transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 1000})
		m.Step(1, transfer.LayoutSet{Session: s, Layout: l})
	}
	ids := make([]uint32, 2*more)
	for i := range ids {
		ids[i] = uint32(i)
	}
	user := uint64(0)
	says := func(s transfer.SessionID, op transfer.Op) string {
		user++
		for _, e := range m.Step(1, transfer.Submit{Session: s, UserData: user, Op: op}) {
			if c, ok := e.(transfer.Complete); ok && c.Reason != transfer.OK {
				return c.Reason.String() + ": " + c.Text
			}
		}
		return ""
	}
	piece := func(first, n int) []layout.BlockList {
		return []layout.BlockList{{FirstToken: uint32(first) * block, NTokens: uint32(n) * block, IDs: ids[first : first+n]}}
	}
	offer := func(n int) *transfer.OfferOp {
		return &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Lease: transfer.Second, Blocks: piece(0, n)}
	}
	if got := says(1, offer(more)); got != "" {
		t.Fatal(got)
	}
	first := user
	if got := says(2, offer(more)); !strings.Contains(got, `key "k": piece 0 has 1048578 block ids of all its ranks, the limit is 1048576`) {
		t.Errorf("what both offer is too much, but rank 1 hears %q", got)
	}
	if got := says(2, offer(more-2)); got != "" {
		t.Error(got)
	}
	second := user
	if got := says(1, &transfer.ExtendOp{Target: first, Blocks: piece(more, more)}); got != "" {
		t.Error(got)
	}
	if got := says(2, &transfer.ExtendOp{Target: second, Blocks: piece(more-2, more)}); !strings.Contains(got, "piece 1 has 1048578 block ids") {
		t.Errorf("what both add is too much, but rank 1 hears %q", got)
	}
}
