package plan_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
)

// TestPairsFrom: a slice that is walked a few runs at a time has the same bytes at the same places as at once.
func TestPairsFrom(t *testing.T) {
	for name, request := range sized(t) {
		p, err := plan.New(request())
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Slices() {
			whole := p.Pairs(i, nil)
			if len(whole) > 4096 {
				continue
			}
			for _, most := range []int{1, 3, len(whole), len(whole) + 1} {
				var got []plan.PairRun
				for at, all := uint64(0), p.Slice(i).Bytes; at < all; {
					some := p.PairsFrom(i, at, most, nil)
					if len(some) == 0 || len(some) > most {
						t.Fatalf("%s, slice %d, byte %d: %d runs, want 1 to %d", name, i, at, len(some), most)
					}
					for _, r := range some {
						at += r.Len
						got = joined(got, r)
					}
				}
				if !slices.Equal(got, whole) {
					t.Errorf("%s, slice %d, %d runs at a time: %v, want %v", name, i, most, got, whole)
				}
			}
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
