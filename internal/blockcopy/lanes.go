package blockcopy

const (
	// line is what a non-temporal store must fill as a whole to be fast.
	line = 64
	// page is the longest piece that is copied in a row: processors fetch
	// ahead within a page, and four pages at once.
	page = 4096
	// width is how many pieces are copied in turn.
	width = 4
)

// lane is a piece that is being copied: as many bytes at both ends, a whole
// number of lines, dst on the border of a line. The assembly knows its layout.
type lane struct {
	dst, src []byte
}

// lanes holds n pieces: the first width are copied in turn, the others are next.
type lanes struct {
	l [2 * width]lane
	n int
}

// advance drops the first size bytes of the width pieces that are copied. Others take
// the place of pieces that end.
func (s *lanes) advance(size int) {
	for i := range width {
		p := &s.l[i]
		p.dst, p.src = p.dst[size:], p.src[size:]
	}
	for i := width - 1; i >= 0; i-- {
		if len(s.l[i].dst) == 0 {
			s.n--
			s.l[i] = s.l[s.n]
		}
	}
}

// shortest returns the length of the shortest of the pieces that are copied.
func (s *lanes) shortest() int {
	return min(len(s.l[0].dst), len(s.l[1].dst), len(s.l[2].dst), len(s.l[3].dst))
}

// copyLanes copies the batch, as many pieces in turn as there are. Pieces of
// one run and of several are alike.
func (c *cursor) copyLanes() {
	var s lanes
	var rest lane
	for {
		for s.n < len(s.l) && c.fill(&rest) {
			n := min(len(rest.dst), page)
			s.l[s.n] = lane{rest.dst[:n], rest.src[:n]}
			s.n++
			rest = lane{rest.dst[n:], rest.src[n:]}
		}
		if s.n < width {
			break
		}
		n := s.shortest()
		c.kernel.four(&s.l, n)
		s.advance(n)
	}
	for i := range s.n {
		c.kernel.one(&s.l[i], len(s.l[i].dst))
	}
}

// fill makes rest the body of the next run when it is empty, and copies what
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
