package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// planned answers a grant of nothing, as if its plan had that size.
func (w *taker) planned(x transfer.XferID, seg uint32, p transfer.Planned) {
	p.Leg, p.Seg = transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}, seg
	w.step(p)
}

// scattered are n blocks of which none follows another.
func scattered(n int) (runs []layout.Run) {
	for i := range n {
		runs = append(runs, layout.Run{First: uint32(2 * i), Count: 1})
	}
	return runs
}

// TestPlansOfGrantsCount: a grant of one block id can make a plan of many views, holes or missing blocks. What is too much ends the take, and
// is not counted any more once that is released.
func TestPlansOfGrantsCount(t *testing.T) {
	for name, c := range map[string]struct {
		plan transfer.Planned
		fit  uint32 // of 100,000
	}{
		"small":     {transfer.Planned{}, 248},
		"views":     {transfer.Planned{Size: 36000}, 10},
		"missing":   {transfer.Planned{Size: 12 * 7000, Missing: scattered(7000)}, 4},
		"marks":     {transfer.Planned{Marks: make([]transfer.Mark, 2048)}, 11},
		"slices":    {transfer.Planned{Slices: 1 << 12}, 3},
		"ranks":     {transfer.Planned{RankBytes: ranksWith(1 << 10)}, 5},
		"too large": {transfer.Planned{Size: 1 << 20}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTaker(t, 100_000)
			user, x := w.take(0)
			seg := uint32(0)
			for ; seg < 4096 && len(w.ends) == 0; seg++ {
				w.says(&transfer.MsgGrant{Xfer: x, Seg: seg, Incarnation: 1, Transport: "tcp", Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, Slices: c.plan.Slices})
				w.planned(x, seg, c.plan)
				w.fenced()
			}
			w.refused(user, x)
			if seg != c.fit+1 {
				t.Errorf("%d segments fit, want %d", seg-1, c.fit)
			}
			w.empty()
		})
	}
}

func ranksWith(n int) map[uint32]uint64 {
	m := map[uint32]uint64{}
	for i := range n {
		m[uint32(i)] = 1
	}
	return m
}

// TestOrdinaryPlansFit: 60 takes at a time of 16 segments each, as long prompts of large models are prefilled, with a view for each of 160 tensors.
func TestOrdinaryPlansFit(t *testing.T) {
	w := newTaker(t, 0)
	for range 60 {
		user, x := w.take(1 << 16)
		for seg := range uint32(16) {
			w.grants(x, seg, 1024)
			w.planned(x, seg, transfer.Planned{Size: 36000})
		}
		w.goesOn(user)
	}
	w.empty()
}

// TestMissingIsASet: whatever its segments lack, a take that ends for it lists each of its blocks once.
func TestMissingIsASet(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.take(0)
	const segs = 50
	odd := layout.Run{Group: 0, First: 9, Count: 1}
	for seg := range uint32(segs) {
		w.says(&transfer.MsgGrant{Xfer: x, Seg: seg, Incarnation: 1, Transport: "tcp", Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, Last: seg == segs-1})
		missing := append(scattered(20)[seg%3:], layout.Run{Group: 1, First: seg / 10, Count: 2})
		if seg == 30 {
			missing = []layout.Run{odd}
		}
		w.planned(x, seg, transfer.Planned{Missing: missing})
		if n := w.m.Missing(x); n > 22 {
			t.Fatalf("after segment %d the take keeps %d runs of missing blocks, want 22 at most", seg, n)
		}
	}
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: segs})
	w.fenced()
	want := scattered(20)
	want[4].Count = 3 // 8, 9 and 10
	want[0].Count = 3 // 0, 2 and the take's own, which no segment has
	want = append(slices.Delete(slices.Delete(want, 5, 6), 1, 2), layout.Run{Group: 1, First: 0, Count: 6})
	if c := w.ends[user]; c.Reason != transfer.NotFound || !slices.Equal(c.Failed, want) {
		t.Errorf("%+v, want blocks %v", c, want)
	}
	w.empty()
}

// TestAPlanThatFailsSaysWhy: the take ends for that reason, and not because the plan is of nothing.
func TestAPlanThatFailsSaysWhy(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.take(0)
	w.grants(x, 0, 1)
	w.planned(x, 0, transfer.Planned{Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "the transport is gone"}})
	w.fenced()
	if c := w.ends[user]; c.Status != transfer.Failed || c.Reason != transfer.Unavailable || c.Text != "the transport is gone" {
		t.Errorf("the take: %+v", c)
	}
}
