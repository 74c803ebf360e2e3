package transfer

import (
	"cmp"
	"slices"
)

// numbered is a value with the number that orders it. A session may have hundreds of thousands of operations: sorting
// these pairs is several times faster than following two pointers for each comparison.
type numbered[T any] struct {
	number uint64
	value  T
}

// inOrder sorts all by number, and returns the values.
func inOrder[T any](all []numbered[T]) []T {
	slices.SortFunc(all, func(a, b numbered[T]) int { return cmp.Compare(a.number, b.number) })
	out := make([]T, len(all))
	for i := range all {
		out[i] = all[i].value
	}
	return out
}
