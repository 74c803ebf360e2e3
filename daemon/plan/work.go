package plan

import "fmt"

// maxWork bounds the steps of matching, each of which takes nanoseconds; maxSegments bounds the segments found. Both
// are needed because one planner makes the plans of all engines, one after the other. Engines of 16 ranks with 1,024
// views each need a thirtieth of maxWork. A million block ids at either end need a thirtieth, or a sixth where
// something is missing.
const (
	maxWork     = 1 << 24
	maxSegments = 1 << 18
	idsScanned  = 4 // block ids whose range and holes are checked in one step
)

// spend counts the steps of the work that follows.
func (b *builder) spend(steps int) error {
	b.spent += steps
	if b.spent <= maxWork && len(b.segments) < maxSegments {
		return nil
	}
	return fmt.Errorf("plan: %w: the views of %d consumer ranks are made of more than %d pieces, or those of %d producer ranks and the block ids take more than %d steps to look through; "+
		"take with fewer ranks at once", ErrTooMuch, len(b.consumer), maxSegments, len(b.producer), maxWork)
}
