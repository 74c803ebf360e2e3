package memory

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// Retain gives the pages of the space's regions back to the system, except those with bytes that keep marks: it calls
// mark for the n bytes at off of a region that have to stay. Bytes outside of a region are ignored. A region of which
// nothing stays is removed, and a vacant one is left as it is. The others stay mapped as a whole, and what was given
// back reads as zeros.
//
// Two things are not given back, and count as kept: a memfd in which another region of any session lies, and the pages
// of a memfd before and behind the region, since others may use those without having registered them.
//
// Retain is for memory that nobody writes any more. It returns how many bytes stay, in whole pages. Register, Remove
// and Close wait for it; giving back takes a while.
func (s *Space) Retain(keep func(mark func(id layout.RegionID, off, n uint64))) (kept uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pages := map[layout.RegionID]*pageSet{}
	regions := append([]*Region(nil), *s.regions.Load()...)
	for _, r := range regions {
		if r != nil && r.bytes != nil {
			pages[r.id] = newPageSet(r.reach(), r.page)
		}
	}
	keep(func(id layout.RegionID, off, n uint64) {
		if p := pages[id]; p != nil {
			if r := regions[uint32(id)]; off < r.size {
				p.mark(r.skip+off, min(n, r.size-off))
			}
		}
	})
	var gone []*Region
	for i, r := range regions {
		if r == nil || r.bytes == nil {
			continue
		}
		left, e := r.shrink(pages[r.id])
		if e != nil {
			err = e // the memory stays until the mapping ends
		}
		less := r.charged - left
		s.used.Add(-less)
		s.pool.giveBack(less)
		r.charged = left
		kept += left
		if left == 0 {
			regions[i] = nil
			s.count--
			gone = append(gone, r)
		}
	}
	s.regions.Store(&regions)
	for _, r := range gone { // nobody can find them any more
		r.drop()
	}
	return kept, err
}

// punchStep is how much is given back at a time. Whoever registers the same memfd meanwhile waits for one step at most.
const punchStep = 4 << 20

// shrink gives back all pages but the marked ones and returns how many bytes are left. It stops when another region
// appears in the memfd.
func (r *Region) shrink(pages *pageSet) (left uint64, err error) {
	r.warm.end() // it would bring back what is given back
	left = uint64(len(r.whole))
	alone := true
	pages.holes(func(from, to int) {
		from = max(from, int(r.skip)/r.page*r.page) // the page in which the region begins
		for step := max(punchStep, r.page); alone && from < to; from += step {
			b := r.whole[from:min(from+step, to)]
			var e error
			if alone, e = r.pool.punchAlone(r.file, b); e != nil {
				err = e
			} else if alone {
				left -= uint64(len(b))
			}
		}
	})
	if alone && pages.none() {
		return 0, nil // it will be unmapped, and then keeps nothing, whatever was not given back before
	}
	return left, err
}

// reach returns where the last page of the region ends in the mapping.
func (r *Region) reach() int { return int(wholePages(r.skip+r.size, uint64(r.page))) }

// pageSet is the set of pages of a mapping that have to stay.
type pageSet struct {
	page, size int
	bits       []uint64
}

func newPageSet(size, page int) *pageSet {
	return &pageSet{page: page, size: size, bits: make([]uint64, (size/page+63)/64)}
}

func (p *pageSet) mark(off, n uint64) {
	end := min(off+n, uint64(p.size))
	if n == 0 || off >= end {
		return
	}
	for i, last := off/uint64(p.page), (end-1)/uint64(p.page); i <= last; i++ {
		p.bits[i/64] |= 1 << (i % 64)
	}
}

// none says whether the set is empty.
func (p *pageSet) none() bool {
	return !slices.ContainsFunc(p.bits, func(w uint64) bool { return w != 0 })
}

// holes calls visit for each longest range of bytes whose pages are not in the set.
func (p *pageSet) holes(visit func(from, to int)) {
	pages, from := p.size/p.page, 0
	for i := 0; i <= pages; i++ {
		if i < pages && p.bits[i/64]&(1<<(i%64)) == 0 {
			continue
		}
		if i > from {
			visit(from*p.page, i*p.page)
		}
		from = i + 1
	}
}
