package plan

// Pieces returns about how many pieces of memory the plan moves, each contiguous at both ends. Pieces of two blocks that
// happen to lie side by side count as two, although they move as one.
func (p *Plan) Pieces() uint64 {
	n := uint64(0)
	for i := range p.flows {
		units := p.flows[i].units
		for k := range units {
			n += units[k].pieces()
		}
	}
	return n
}

func (u *unit) pieces() uint64 {
	if u.track.tokens == 0 {
		return 0
	}
	chunk := min(u.track.src.size, u.track.dst.size, u.track.tokens)
	n := u.nest(chunk, atBoth)
	return u.track.tokens * n.pieces() / chunk
}
