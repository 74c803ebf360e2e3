package peer

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// rank appends a RankRef.
func (f *fields) rank(to []transfer.RankRef) []transfer.RankRef {
	if len(to) == maxRanks {
		f.fail("%s names more than %d ranks", f.what, maxRanks)
		return to
	}
	in := f.message("rank")
	var r transfer.RankRef
	var d []byte
	for in.next() {
		switch in.num {
		case 1:
			r.Rank = in.uint32()
		case 2:
			d = in.bytes("digest", len(r.Digest))
		}
	}
	r.Digest = in.digest(d)
	f.err = in.err
	return append(to, r)
}

// list appends a BlockList. budget bounds the ids of the whole message.
func (f *fields) list(to []layout.BlockList, budget *int) []layout.BlockList {
	if len(to) == layout.MaxGroups {
		f.fail("%s has more than %d block lists", f.what, layout.MaxGroups)
		return to
	}
	in := f.message("block list")
	var l layout.BlockList
	var count uint32
	var ids []byte
	var run bool
	for in.next() {
		switch in.num {
		case 1:
			l.Group = in.uint32()
		case 2:
			l.FirstToken = in.uint32()
		case 3:
			l.NTokens = in.uint32()
		case 4:
			count = in.uint32()
		case 5:
			ids = in.bytes("ids", maxFrame)
		case 6:
			run = in.bool()
		}
	}
	if int64(count) > int64(*budget) {
		in.fail("more than %d block ids in one message", layout.MaxIDs)
	}
	if in.err == nil {
		*budget -= int(count)
		var err error
		if run {
			l.IDs, err = decodeRun(ids, count)
		} else {
			l.IDs, err = layout.DecodeIDs(ids, int(count))
		}
		if err != nil {
			in.fail("%s, group %d: %v", f.what, l.Group, err)
		}
	}
	f.err = in.err
	return append(to, l)
}

// decodeRun decodes a run of ids, of which only the first is sent. It accepts only runs that cost no memory. A peer
// must send other ids one by one, so the length of its message bounds their memory.
func decodeRun(b []byte, count uint32) ([]uint32, error) {
	first, err := layout.DecodeIDs(b, 1)
	if err != nil {
		return nil, err
	}
	if ids, ok := layout.Tabled(first[0], count); ok {
		return ids, nil
	}
	return nil, fmt.Errorf("a run of %d ids from %d: those above %d are said one by one", count, first[0], layout.MaxTabled)
}

// by adds the lists of one rank.
func (f *fields) by(to map[uint32][]layout.BlockList, budget *int) map[uint32][]layout.BlockList {
	if len(to) == maxRanks {
		f.fail("%s has block lists of more than %d ranks", f.what, maxRanks)
		return to
	}
	in := f.message("blocks of a rank")
	var rank uint32
	var lists []layout.BlockList
	for in.next() {
		switch in.num {
		case 1:
			rank = in.uint32()
		case 2:
			lists = in.list(lists, budget)
		}
	}
	if _, twice := to[rank]; twice {
		in.fail("%s has block lists of rank %d twice", f.what, rank)
	}
	f.err = in.err
	if to == nil {
		to = map[uint32][]layout.BlockList{}
	}
	to[rank] = lists
	return to
}

// digest requires the exact length of a digest.
func (f *fields) digest(b []byte) (d [32]byte) {
	if len(b) != len(d) {
		f.fail("%s: layout digest of %d bytes, want %d", f.what, len(b), len(d))
	}
	copy(d[:], b)
	return d
}
