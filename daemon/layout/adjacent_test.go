package layout

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAdjacent(t *testing.T) {
	for _, c := range []struct {
		first, n uint32
		table    bool
	}{
		{0, 1, true}, {5, 3, true}, {0, MaxTabled, true}, {MaxTabled - 1, 1, true},
		{MaxTabled - 1, 2, false}, {NoBlock - 3, 3, false}, {9, 0, false},
	} {
		ids := Adjacent(c.first, c.n)
		if len(ids) != int(c.n) || cap(ids) != len(ids) || IsAdjacent(ids) != c.table {
			t.Errorf("%d from %d: length %d, capacity %d, in the table %v", c.n, c.first, len(ids), cap(ids), IsAdjacent(ids))
		}
		for i, id := range ids {
			if id != c.first+uint32(i) {
				t.Fatalf("%d from %d: number %d is %d", c.n, c.first, i, id)
			}
		}
	}
	if ids := Adjacent(40, 8); !IsAdjacent(ids[3:5]) || IsAdjacent(slices.Clone(ids)) || IsAdjacent(nil) || IsAdjacent([]uint32{NoBlock}) {
		t.Error("parts of a list are adjacent, copies are only not known to be")
	}
}

// TestAdjacentTravels: the wire form of a run is that of any ids, and is known again when it comes.
func TestAdjacentTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, few - 1, few, 4096, 4097, 4098, 10000}).Draw(t, "ids")
		first := uint32(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(MaxTabled-10000, MaxTabled)).Draw(t, "first"))
		ids := Adjacent(first, uint32(n))
		wire := AppendIDs([]byte("x"), ids)
		if plain := AppendIDs([]byte("x"), slices.Clone(ids)); !slices.Equal(wire, plain) {
			t.Fatalf("%d from %d: %x, want %x", n, first, wire, plain)
		}
		back, err := DecodeIDs(wire[1:], n)
		if err != nil || !slices.Equal(back, ids) {
			t.Fatalf("%d from %d: %v", n, first, err)
		}
		if n >= few && IsAdjacent(back) != IsAdjacent(ids) {
			t.Fatalf("%d from %d: known to be adjacent: %v", n, first, IsAdjacent(back))
		}
		// Of others, the last as well as the first may be where they break off.
		other := slices.Clone(ids)
		other[rapid.IntRange(0, n-1).Draw(t, "which")] = rapid.SampledFrom([]uint32{NoBlock, 0, 1 << 30}).Draw(t, "another")
		if back, err := DecodeIDs(AppendIDs(nil, other), n); err != nil || !slices.Equal(back, other) {
			t.Fatalf("%d from %d, changed: %v", n, first, err)
		}
	})
}
