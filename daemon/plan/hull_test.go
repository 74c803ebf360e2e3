package plan

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestHull: the memory of runs is found in that of their hull, whatever their order, and runs of two regions have none.
func TestHull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		region := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "region")
		draw := func(what string) Run {
			off := rapid.IntRange(0, len(region)-1).Draw(t, what)
			n := rapid.IntRange(1, len(region)-off).Draw(t, what)
			return Run{Rank: 3, Region: 7, Off: uint64(off), Len: uint64(n)}
		}
		runs := []Run{draw("first"), draw("second"), draw("third")}
		hull := runs[0]
		for _, r := range runs[1:] {
			wider, ok := hull.Hull(r)
			if !ok {
				t.Fatalf("%v and %v have no hull", hull, r)
			}
			hull = wider
		}
		b := region[hull.Off:][:hull.Len]
		for _, r := range runs {
			if got := r.In(hull, b); !bytes.Equal(got, region[r.Off:][:r.Len]) || cap(got) != len(got) {
				t.Fatalf("%v in %v is not its bytes, or reaches beyond", r, hull)
			}
		}
	})
	here := Run{Rank: 1, Region: 2, Len: 8}
	for _, other := range []Run{{Rank: 2, Region: 2, Len: 8}, {Rank: 1, Region: 3, Len: 8}} {
		if hull, ok := here.Hull(other); ok || hull != here {
			t.Errorf("%v and %v have the hull %v", here, other, hull)
		}
	}
}
