package plan_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
)

// TestPairsFrom: a slice that is walked a few runs at a time has the same bytes at the same places as at once: at both ends together, and
// at each of them.
func TestPairsFrom(t *testing.T) {
	for name, request := range sized(t) {
		p, err := plan.New(request())
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Slices() {
			aFewAtATime(t, name, p, i, p.PairsFrom, func(r plan.PairRun) plan.PairRun { return r })
			aFewAtATime(t, name+", source", p, i, p.SrcFrom, func(r plan.Run) plan.PairRun {
				return plan.PairRun{SrcRank: r.Rank, SrcRegion: r.Region, SrcOff: r.Off, DstOff: r.Off, Len: r.Len}
			})
			aFewAtATime(t, name+", destination", p, i, p.DstFrom, func(r plan.Run) plan.PairRun {
				return plan.PairRun{DstRank: r.Rank, DstRegion: r.Region, SrcOff: r.Off, DstOff: r.Off, Len: r.Len}
			})
		}
	}
}

// aFewAtATime compares what from appends all at once and a few at a time. pair makes a pair of a run; where it is one of an end, both ends
// of the pair may go on together.
func aFewAtATime[R any](t *testing.T, name string, p *plan.Plan, i int, from func(i int, skip uint64, most int, dst []R) []R, pair func(R) plan.PairRun) {
	t.Helper()
	var whole []plan.PairRun
	for _, r := range from(i, 0, 1<<20, nil) {
		whole = append(whole, pair(r))
	}
	if len(whole) > 4096 {
		return
	}
	for _, most := range []int{1, 3, len(whole), len(whole) + 1} {
		var got []plan.PairRun
		for at, all := uint64(0), p.Slice(i).Bytes; at < all; {
			some := from(i, at, most, nil)
			if len(some) == 0 || len(some) > most {
				t.Fatalf("%s, slice %d, byte %d: %d runs, want 1 to %d", name, i, at, len(some), most)
			}
			for _, r := range some {
				at += pair(r).Len
				got = joined(got, pair(r))
			}
		}
		if !slices.Equal(got, whole) {
			t.Errorf("%s, slice %d, %d runs at a time: %v, want %v", name, i, most, got, whole)
		}
	}
}

// joined appends a run, or lengthens the last one by it.
func joined(to []plan.PairRun, r plan.PairRun) []plan.PairRun {
	if k := len(to) - 1; k >= 0 {
		last := to[k]
		if last.SrcOff += last.Len; last.SrcOff == r.SrcOff && last.SrcRegion == r.SrcRegion && last.DstRegion == r.DstRegion && last.DstOff+last.Len == r.DstOff {
			to[k].Len += r.Len
			return to
		}
	}
	return append(to, r)
}
