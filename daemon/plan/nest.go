package plan

// part is mostly one view, or several of the same shape at even distances. Within a block its elements are visited by
// nested loops over views, tokens and heads, in the order of the destination's memory.
type part struct {
	src, dst       uint64 // offsets of block 0, token 0
	srcTok, dstTok uint64 // token strides
	content        uint64 // bytes of one element
	perToken       uint64 // bytes of all views and heads
	dims           [3]dim // outermost first
	n              int
}

// dim is one loop, with its stride at either end.
type dim struct {
	count    uint64 // 0: the chunk's tokens
	src, dst uint64
}

// makePart returns the part of so many views of the segment's shape. The strides between views matter only if there
// are several.
func makePart(s *segment, views, srcStride, dstStride uint64) part {
	p := part{
		src: s.srcOff(), dst: s.dstOff(),
		srcTok: s.s.TokenStride, dstTok: s.d.TokenStride,
		content: s.d.ContentBytes, perToken: views * s.heads() * s.d.ContentBytes,
	}
	p.insert(dim{views, srcStride, dstStride})
	if s.track.src.size > 1 && s.track.dst.size > 1 {
		p.insert(dim{0, p.srcTok, p.dstTok})
	}
	p.insert(dim{s.heads(), s.s.HeadStride, s.d.HeadStride})
	return p
}

// insert adds a loop. Loops stay in descending order of their destination strides.
func (p *part) insert(d dim) {
	if d.count == 1 {
		return
	}
	i := p.n
	for ; i > 0 && p.dims[i-1].dst < d.dst; i-- {
		p.dims[i] = p.dims[i-1]
	}
	p.dims[i] = d
	p.n++
}

// side says at which ends pieces have to be contiguous.
type side uint8

const (
	atSrc  side = 1
	atDst  side = 2
	atBoth side = atSrc | atDst
)

// nest is a part's loops for a chunk of some tokens. Inner loops that only lengthen the piece are folded into run.
type nest struct {
	run  uint64 // bytes of a piece
	n    int
	dims [3]dim // outermost first
}

func (p *part) nest(tokens uint64, at side) nest {
	n := nest{run: p.content}
	i := p.n
	for ; i > 0; i-- {
		d := p.dims[i-1]
		if d.count == 0 {
			d.count = tokens
		}
		if d.count == 1 {
			continue
		}
		if at&atSrc != 0 && d.src != n.run || at&atDst != 0 && d.dst != n.run {
			break
		}
		n.run *= d.count
	}
	for k := range i {
		d := p.dims[k]
		if d.count == 0 {
			d.count = tokens
		}
		if d.count > 1 {
			n.dims[n.n] = d
			n.n++
		}
	}
	return n
}

// pieces returns how many pieces there are.
func (n *nest) pieces() uint64 {
	count := uint64(1)
	for i := range n.n {
		count *= n.dims[i].count
	}
	return count
}
