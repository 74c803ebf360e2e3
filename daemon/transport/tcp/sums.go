package tcp

import "github.com/kvpipe/kvpipe/internal/crc32c"

// sums are the checksums of a payload that arrives in parts of any length, between other bytes.
type sums struct {
	done []uint32
	cur  uint32
	have int // bytes summed in cur
	skip int // bytes to come before the payload
	left int // payload bytes to come; what follows them is not summed
}

func (s *sums) reset(skip, length int) {
	*s = sums{done: s.done[:0], skip: skip, left: length}
}

// add continues with b.
func (s *sums) add(b []byte) {
	n := min(s.skip, len(b))
	s.skip -= n
	b = b[n:]
	b = b[:min(len(b), s.left)]
	s.left -= len(b)
	for len(b) > 0 {
		n := min(len(b), piece-s.have)
		s.cur = crc32c.Update(s.cur, b[:n])
		s.have += n
		b = b[n:]
		if s.have == piece {
			s.next()
		}
	}
	if s.left == 0 && s.have > 0 {
		s.next()
	}
}

func (s *sums) next() {
	s.done = append(s.done, s.cur)
	s.cur, s.have = 0, 0
}
