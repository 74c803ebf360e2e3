package plan

// Pieces returns about how many pieces of memory the plan moves, each contiguous at both ends. Pieces of two blocks that
// happen to lie side by side count as two, although they move as one.
func (p *Plan) Pieces() uint64 { return p.pieces }

// countPieces is done once: each slice is judged by them.
func (p *Plan) countPieces() {
	for i := range p.flows {
		units := p.flows[i].units
		for k := range units {
			p.pieces += units[k].pieces()
		}
	}
}

// leastPiece is how many bytes a piece counts as at least: moving one takes as long as moving about so many bytes. Blocks
// of pipes are larger, and so are those of usual layouts.
const leastPiece = 32

// Small reports whether n bytes of the plan, all or a slice, may be moved while others wait, as most bytes in one piece
// may. They may not if they fall into many tiny pieces.
func (p *Plan) Small(n, most uint64) bool {
	if n == 0 || n > most {
		return n == 0
	}
	return float64(p.pieces)*leastPiece*float64(n) <= float64(most)*float64(p.bytes)
}

func (u *unit) pieces() uint64 {
	switch {
	case u.track.tokens == 0:
		return 0
	case len(u.parts) > 1:
		return u.fused()
	}
	chunk := min(u.track.src.size, u.track.dst.size, u.track.tokens)
	n := u.nest(chunk, atBoth)
	return u.track.tokens * n.pieces() / chunk
}

// fused is pieces of several parts: a whole block is one, and what is moved of a block at either end of all tokens is some
// of each part, perhaps byte by byte. Between holes there are whole blocks: both ends' blocks are of one size, and nothing
// else moves of a block of which something is missing.
func (u *unit) fused() uint64 {
	t := u.track
	first, last := &t.spans[0], &t.spans[len(t.spans)-1]
	size := t.src.size // and that of the other end's blocks
	head := min((first.first+size-1)/size*size, first.end) - first.first
	tail := uint64(0)
	if len(t.spans) > 1 || head < first.end-first.first {
		tail = last.end % size
	}
	n := (t.tokens - head - tail) / size
	for _, tokens := range [...]uint64{head, tail} {
		for k := 0; tokens > 0 && k < len(u.parts); k++ {
			some := u.parts[k].nest(tokens, atBoth)
			n += some.pieces()
		}
	}
	return n
}
