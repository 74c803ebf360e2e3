package session

import (
	"encoding/binary"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
)

var le = binary.LittleEndian

// DecodeBlocks reads n groups of block ids, which must fill b up to padding. It copies the ids. It returns at most
// layout.MaxIDs of them, however few bytes stand for them.
func DecodeBlocks(b []byte, n uint32) ([]layout.BlockList, error) {
	if n > layout.MaxGroups {
		return nil, invalid("ngroups is %d, the limit is %d", n, layout.MaxGroups)
	}
	var lists []layout.BlockList
	if n > 0 {
		lists = make([]layout.BlockList, 0, n)
	}
	var seen uint64 // a bit for each group; there are 64
	left := layout.MaxIDs
	for i := range n {
		g, rest, err := groupHeader(b, i)
		if err != nil {
			return nil, err
		}
		if seen&(1<<g.Group) != 0 {
			return nil, invalid("blocks %d: group %d is given twice: give each group once", i, g.Group)
		}
		seen |= 1 << g.Group
		size := uint64(g.Count) * 4
		if g.Form == ring.FormRuns {
			size *= 2
		}
		if size > uint64(len(rest)) {
			return nil, invalid("blocks %d: count is %d (%d bytes), the record has %d bytes left", i, g.Count, size, len(rest))
		}
		list := layout.BlockList{Group: g.Group, FirstToken: g.FirstToken, NTokens: g.NTokens}
		if g.Form == ring.FormIDs {
			list.IDs, err = expandIDs(rest[:size], left)
		} else {
			list.IDs, err = expandRuns(rest[:size], left)
		}
		if err != nil {
			return nil, invalid("blocks %d: %v", i, err)
		}
		left -= len(list.IDs)
		lists = append(lists, list)
		if b, err = skipPadding(rest, int(size)); err != nil {
			return nil, invalid("blocks %d: %v", i, err)
		}
	}
	if len(b) != 0 {
		return nil, invalid("record has %d bytes after its last group", len(b))
	}
	return lists, nil
}

func groupHeader(b []byte, i uint32) (g ring.RecGroup, rest []byte, err error) {
	if len(b) < ring.RecGroupSize {
		return g, nil, invalid("blocks %d: %d bytes are left, the header of a group has %d", i, len(b), ring.RecGroupSize)
	}
	g = ring.RecGroup{
		Group: le.Uint32(b), FirstToken: le.Uint32(b[4:]), NTokens: le.Uint32(b[8:]),
		Form: le.Uint32(b[12:]), Count: le.Uint32(b[16:]), Reserved: le.Uint32(b[20:]),
	}
	switch {
	case g.Group >= layout.MaxGroups:
		err = invalid("blocks %d: group is %d, the limit is %d", i, g.Group, layout.MaxGroups-1)
	case g.Form != ring.FormIDs && g.Form != ring.FormRuns:
		err = invalid("blocks %d: form is %d: must be 1 (ids) or 2 (runs)", i, g.Form)
	case g.Reserved != 0:
		err = invalid("blocks %d: reserved field is not zero", i)
	case g.NTokens > ^uint32(0)-g.FirstToken:
		err = invalid("blocks %d: first_token %d + ntokens %d is more than %d", i, g.FirstToken, g.NTokens, ^uint32(0))
	}
	return g, b[ring.RecGroupSize:], err
}

func expandIDs(b []byte, left int) ([]uint32, error) {
	n := len(b) / 4
	if n > left {
		return nil, tooMany(uint64(layout.MaxIDs - left + n))
	}
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = le.Uint32(b[i*4:])
	}
	return ids, nil
}

// expandRuns counts before it allocates: a few bytes may claim billions of ids.
func expandRuns(b []byte, left int) ([]uint32, error) {
	total := uint64(0)
	for i := 0; i < len(b); i += 8 {
		first, n := le.Uint32(b[i:]), le.Uint32(b[i+4:])
		if n == 0 || first != layout.NoBlock && n > layout.NoBlock-first {
			return nil, invalid("run %d: %d blocks from %d: must be at least one, and ids below %d", i/8, n, first, layout.NoBlock)
		}
		if total += uint64(n); total > uint64(left) {
			return nil, tooMany(uint64(layout.MaxIDs-left) + total)
		}
	}
	if len(b) == 8 && le.Uint32(b) != layout.NoBlock {
		return layout.Adjacent(le.Uint32(b), uint32(total)), nil
	}
	ids := make([]uint32, 0, total)
	for i := 0; i < len(b); i += 8 {
		first, n, step := le.Uint32(b[i:]), le.Uint32(b[i+4:]), uint32(1)
		if first == layout.NoBlock {
			step = 0
		}
		for j := range n {
			ids = append(ids, first+j*step)
		}
	}
	return ids, nil
}

func tooMany(n uint64) error {
	return invalid("at least %d block ids, the limit of one operation is %d: split it", n, layout.MaxIDs)
}

// skipPadding drops the first n bytes of b and the zeros up to the next multiple of 8 bytes.
func skipPadding(b []byte, n int) ([]byte, error) {
	end := min((n+7)&^7, len(b))
	for _, c := range b[n:end] {
		if c != 0 {
			return nil, invalid("padding is not zero")
		}
	}
	return b[end:], nil
}
