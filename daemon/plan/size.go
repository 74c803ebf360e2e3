package plan

// Sizes of what a plan keeps, in bytes.
const (
	flowSize  = 56
	unitSize  = 88 + 128 // with its part
	trackSize = 176
	spanSize  = 24
	runSize   = 12
	rankSize  = 40
)

// Size returns how many bytes the plan keeps beyond the smallest possible plan, which is a single allocation, and
// beyond its Request. Callers that plan for peers count them: a few block ids can make a large plan of many views,
// holes or missing blocks.
func (p *Plan) Size() int { return p.size }

// size computes Size while the builder still knows all tracks.
func (b *builder) size() int {
	p := b.plan
	n := rankSize*len(p.consumers) + runSize*cap(p.missing)
	if cap(p.flows) > len(p.room.flows) {
		n += flowSize * cap(p.flows)
	}
	for i := range p.flows {
		if units := p.flows[i].units; &units[0] != &p.room.units[0] {
			n += unitSize * cap(units)
		}
	}
	for i, t := range b.tracks {
		if i > 0 {
			n += trackSize
		}
		if cap(t.spans) > len(p.room.spans) {
			n += spanSize * cap(t.spans)
		}
	}
	return n
}
