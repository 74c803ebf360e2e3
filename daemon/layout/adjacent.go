package layout

// Most lists of a pipe's arena, and those of long prompts on an empty cache, are one run of adjacent ids. Such a list
// is a slice of one table, in which each number is stored at its own index. So it costs no memory, and a receiver can
// recognise it without reading it. Like all lists it is never written.

// MaxTabled is how many numbers the table has: more than the blocks of an arena of the default size. It takes 2 MiB.
const MaxTabled = 1 << 19

var numbers = count(0, MaxTabled)

func count(first, n uint32) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = first + uint32(i)
	}
	return ids
}

// Adjacent returns the n ids first, first+1 and so on, all of which must be below NoBlock. The caller must not change
// them. Safe for concurrent use.
func Adjacent(first, n uint32) []uint32 {
	if ids, ok := Tabled(first, n); ok {
		return ids
	}
	return count(first, n)
}

// Tabled is like Adjacent, but only for ids that cost no memory; ok is false for others.
func Tabled(first, n uint32) (ids []uint32, ok bool) {
	end := uint64(first) + uint64(n)
	if end > MaxTabled {
		return nil, false
	}
	return numbers[first:end:end], true
}

// IsAdjacent says whether the ids are a slice of the table, and so adjacent. Ids for which it is false may be
// adjacent too.
func IsAdjacent(ids []uint32) bool {
	return len(ids) > 0 && ids[0] < MaxTabled && &ids[0] == &numbers[ids[0]]
}
