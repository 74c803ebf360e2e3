package blockcopy

const (
	// line is what a non-temporal store must fill as a whole to be fast.
	line = 64
	// page is the longest piece of most kernels: processors fetch ahead within
	// a page, and in several pages at once.
	page = 4096
	// widest is the most pieces that a kernel copies in turn.
	widest = 4
)

// lane is a piece that is being copied: as many bytes at both ends, a whole
// number of lines, with dst on the boundary of a line. The assembly knows its
// layout.
type lane struct {
	dst, src []byte
}

// lanes holds n pieces, of which width at a time are copied, and room for the
// sources that come after them.
type lanes struct {
	l     [Quantum/page + widest]lane
	n     int
	width int
}

// uniform returns how many groups of width pieces, from piece i on, have n
// bytes in each piece.
func (s *lanes) uniform(i, n int) int {
	j := i
	for j < s.n && len(s.l[j].dst) == n {
		j++
	}
	return (j - i) / s.width
}

// advance drops the first n bytes of the width pieces from i on. Pieces that
// end make room for those that follow. It returns where the first remaining
// piece is now.
func (s *lanes) advance(i, n int) int {
	group := s.l[i : i+s.width]
	first := 0
	for k := range group {
		p := &group[k]
		if p.dst, p.src = p.dst[n:], p.src[n:]; len(p.dst) == 0 {
			group[k] = group[first]
			first++
		}
	}
	return i + first
}

// shortest returns the length of the shortest of the width pieces from i on.
func (s *lanes) shortest(i int) int {
	n := len(s.l[i].dst)
	for k := i + 1; k < i+s.width; k++ {
		n = min(n, len(s.l[k].dst))
	}
	return n
}

// copyGroups copies pieces, width in turn, while there are that many, and moves
// the rest to the front.
func (s *lanes) copyGroups(k kernel) {
	i := 0
	for s.n-i >= s.width {
		n := s.shortest(i)
		if groups := s.uniform(i, n); groups > 0 {
			k.groups(&s.l[i], n, groups)
			i += groups * s.width
			continue
		}
		k.groups(&s.l[i], n, 1)
		i = s.advance(i, n)
	}
	s.n = copy(s.l[:], s.l[i:s.n])
}

// copyLanes copies the batch. It treats pieces of one run and of several alike.
func (c *cursor) copyLanes() {
	s := lanes{width: c.kernel.width()}
	var rest lane
	longest := c.kernel.piece()
	for more := true; more; {
		for s.n < len(s.l)-s.width {
			if more = c.fill(&rest); !more {
				break
			}
			n := min(len(rest.dst), longest)
			s.l[s.n] = lane{rest.dst[:n], rest.src[:n]}
			s.n++
			rest = lane{rest.dst[n:], rest.src[n:]}
		}
		c.peek(s.l[s.n:][:s.width], rest.src, longest)
		s.copyGroups(c.kernel)
	}
	for i := range s.n {
		c.kernel.one(&s.l[i], len(s.l[i].dst))
	}
}

// peek shows the kernel which sources come next: those of rest, then those of
// the runs from the cursor on, even beyond the batch.
func (c *cursor) peek(l []lane, rest []byte, longest int) {
	i, off := c.i, c.off
	for k := range l {
		for len(rest) == 0 && i < len(c.runs) {
			rest = c.runs[i].Src[off:]
			i, off = i+1, 0
		}
		l[k].src = rest
		rest = rest[min(longest, len(rest)):]
	}
}

// fill makes rest the body of the next run, when rest is empty, and copies what
// surrounds the body. It returns false at the end of the batch.
func (c *cursor) fill(rest *lane) bool {
	for len(rest.dst) == 0 {
		dst, src, ok := c.next()
		if !ok {
			return false
		}
		if len(dst) < minRun {
			copy(dst, src)
			continue
		}
		head := misaligned(dst)
		body := (len(dst) - head) &^ (line - 1)
		copy(dst[:head], src[:head])
		copy(dst[head+body:], src[head+body:])
		*rest = lane{dst[head : head+body], src[head : head+body]}
	}
	return true
}
