package plan

import (
	"math"
	"sort"
)

// Src appends the source runs of slice i to dst, in stream order, with adjacent runs merged.
func (p *Plan) Src(i int, dst []Run) []Run { return p.SrcFrom(i, 0, math.MaxInt, dst) }

// SrcFrom is Src without the first skip bytes of the slice, and ends early when it has appended most runs. A slice of
// single bytes has a million.
func (p *Plan) SrcFrom(i int, skip uint64, most int, dst []Run) []Run {
	w := walk{at: atSrc, most: most, runs: dst}
	w.part(p, i, skip, p.sliceBytes)
	return w.runs
}

// Dst appends the destination runs of slice i to dst, in stream order, with adjacent runs merged.
func (p *Plan) Dst(i int, dst []Run) []Run { return p.DstFrom(i, 0, math.MaxInt, dst) }

// DstFrom is to Dst what SrcFrom is to Src.
func (p *Plan) DstFrom(i int, skip uint64, most int, dst []Run) []Run {
	w := walk{at: atDst, most: most, runs: dst}
	w.part(p, i, skip, p.sliceBytes)
	return w.runs
}

// DstFirst appends to dst the run of one byte where slice i begins at the destination.
func (p *Plan) DstFirst(i int, dst []Run) []Run {
	w := walk{at: atDst, runs: dst}
	w.part(p, i, 0, 1)
	return w.runs
}

// Pairs appends the runs of slice i that are contiguous at both ends to dst, in stream order, with adjacent runs
// merged.
func (p *Plan) Pairs(i int, dst []PairRun) []PairRun {
	return p.PairsFrom(i, 0, math.MaxInt, dst)
}

// PairsFrom is to Pairs what SrcFrom is to Src.
func (p *Plan) PairsFrom(i int, skip uint64, most int, dst []PairRun) []PairRun {
	w := walk{at: atBoth, most: most, pairs: dst}
	w.part(p, i, skip, p.sliceBytes)
	return w.pairs
}

// walk collects the pieces of a slice.
type walk struct {
	at    side
	left  uint64 // bytes still to come
	runs  []Run
	pairs []PairRun
	from  int     // runs or pairs before this index are the caller's
	most  int     // runs or pairs to collect
	pair  PairRun // ranks and regions of the current unit
	whole bool    // a span of the current unit is one piece
}

// part collects up to byte n of a slice, leaving out the first skip bytes.
func (w *walk) part(p *Plan, i int, skip, n uint64) {
	f, at := p.find(i)
	n = min(n, p.sliceBytes, f.bytes-at)
	w.left = n - min(skip, n)
	at += skip
	w.pair.SrcRank, w.pair.DstRank = f.srcRank, f.dstRank
	w.from = len(w.runs) + len(w.pairs)
	k := 0
	if at > 0 {
		k = sort.Search(len(f.units), func(k int) bool { return f.units[k].start > at }) - 1
	}
	for ; w.left > 0; k++ {
		u := &f.units[k]
		w.unit(u, at-u.start)
		at = u.start + u.perToken*u.track.tokens
	}
}

// unit collects pieces from byte at of a unit on.
func (w *walk) unit(u *unit, at uint64) {
	w.pair.SrcRegion, w.pair.DstRegion = u.srcRegion, u.dstRegion
	w.whole = u.straight(w.at)
	t := u.track
	token := at / u.perToken // any token of the chunk
	k := 0
	if len(t.spans) > 1 {
		k = sort.Search(len(t.spans), func(k int) bool { return t.spans[k].before > token }) - 1
	}
	for ; w.left > 0 && k < len(t.spans); k++ {
		s := &t.spans[k]
		first := s.first
		if token > s.before {
			in := s.first + token - s.before
			first = max(first, in-in%t.src.size, in-in%t.dst.size)
		}
		skip := uint64(0)
		if start := (s.before + first - s.first) * u.perToken; at > start {
			skip = at - start
		}
		w.span(u, first, s.end, skip)
	}
}

// span collects the chunks from token first, which begins a chunk, to token end, leaving out the first skip bytes.
func (w *walk) span(u *unit, first, end, skip uint64) {
	src, dst := &u.track.src, &u.track.dst
	si, so := first/src.size-src.skip, first%src.size
	di, do := first/dst.size-dst.skip, first%dst.size
	p := &u.parts[0]
	if w.whole {
		s, d := uint64(src.ids[si])*u.srcStride, uint64(dst.ids[di])*u.dstStride
		w.piece(s+p.src+so*p.srcTok+skip, d+p.dst+do*p.dstTok+skip, (end-first)*u.perToken-skip)
		return
	}
	var n nest
	for tokens := uint64(0); first < end && w.left > 0; first += tokens {
		if c := min(src.size-so, dst.size-do, end-first); c != tokens {
			tokens = c
			n = u.nest(tokens, w.at)
		}
		s, d := uint64(src.ids[si])*u.srcStride, uint64(dst.ids[di])*u.dstStride
		switch {
		case len(u.parts) > 1 && tokens < src.size:
			w.parts(u, s, d, so, do, tokens, skip)
		case n.n == 0:
			w.piece(s+p.src+so*p.srcTok+skip, d+p.dst+do*p.dstTok+skip, n.run-skip)
		default:
			w.nest(&n, s+p.src+so*p.srcTok, d+p.dst+do*p.dstTok, skip)
		}
		skip = 0
		if so += tokens; so == src.size {
			si, so = si+1, 0
		}
		if do += tokens; do == dst.size {
			di, do = di+1, 0
		}
	}
}

// nest returns the loops of a chunk: those of the only part, or a single piece if the chunk is a whole block of
// several parts.
func (u *unit) nest(tokens uint64, at side) nest {
	if len(u.parts) > 1 {
		return nest{run: tokens * u.perToken}
	}
	return u.parts[0].nest(tokens, at)
}

// parts collects, part by part, a chunk that is not a whole block.
func (w *walk) parts(u *unit, s, d, so, do, tokens, skip uint64) {
	for i := range u.parts {
		p := &u.parts[i]
		if bytes := tokens * p.perToken; skip >= bytes {
			skip -= bytes
			continue
		}
		n := p.nest(tokens, w.at)
		w.nest(&n, s+p.src+so*p.srcTok, d+p.dst+do*p.dstTok, skip)
		skip = 0
		if w.left == 0 {
			return
		}
	}
}

// nest collects the pieces of a nest whose first element lies at src and dst, leaving out the first skip bytes.
func (w *walk) nest(n *nest, src, dst, skip uint64) {
	var at [3]uint64
	if skip >= n.run {
		index := skip / n.run
		skip %= n.run
		for k := n.n - 1; k >= 0; k-- {
			d := &n.dims[k]
			at[k], index = index%d.count, index/d.count
			src += at[k] * d.src
			dst += at[k] * d.dst
		}
	}
	for {
		w.piece(src+skip, dst+skip, n.run-skip)
		skip = 0
		if w.left == 0 {
			return
		}
		k := n.n - 1
		for ; k >= 0; k-- {
			d := &n.dims[k]
			src += d.src
			dst += d.dst
			if at[k]++; at[k] < d.count {
				break
			}
			src -= d.count * d.src
			dst -= d.count * d.dst
			at[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// piece appends a piece, or extends the previous one.
func (w *walk) piece(src, dst, n uint64) {
	n = min(n, w.left)
	w.left -= n
	switch w.at {
	case atBoth:
		if k := len(w.pairs) - 1; k >= w.from {
			if last := &w.pairs[k]; last.SrcOff+last.Len == src && last.DstOff+last.Len == dst &&
				last.SrcRegion == w.pair.SrcRegion && last.DstRegion == w.pair.DstRegion {
				last.Len += n
				return
			}
		}
		r := w.pair
		r.SrcOff, r.DstOff, r.Len = src, dst, n
		w.pairs = append(w.pairs, r)
		if len(w.pairs)-w.from == w.most {
			w.left = 0
		}
	case atSrc:
		w.run(Run{w.pair.SrcRank, w.pair.SrcRegion, src, n})
	default:
		w.run(Run{w.pair.DstRank, w.pair.DstRegion, dst, n})
	}
}

func (w *walk) run(r Run) {
	if k := len(w.runs) - 1; k >= w.from {
		if last := &w.runs[k]; last.Off+last.Len == r.Off && last.Region == r.Region {
			last.Len += r.Len
			return
		}
	}
	w.runs = append(w.runs, r)
	if len(w.runs)-w.from == w.most {
		w.left = 0
	}
}
