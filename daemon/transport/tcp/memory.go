package tcp

import (
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// pieces turns the runs of a slice into memory, transport.AtATime of them at a time. It keeps its buffers.
type pieces struct {
	runs []plan.Run
	iov  []sys.Iovec
	at   uint64 // bytes of the slice that were turned into memory
}

// look appends the memory of the next runs of slice i to p.iov. walk is the plan's SrcFrom or DstFrom.
func (p *pieces) look(walk func(i int, skip uint64, most int, dst []plan.Run) []plan.Run, i int, find func(plan.Run) ([]byte, bool), side string) transfer.Cause {
	p.runs = walk(i, p.at, transport.AtATime, p.runs[:0])
	return p.resolve(find, side)
}

// gone is why memory was not found when a part of a slice had been moved.
type gone transfer.Cause

func (e gone) Error() string { return e.Text }

// resolve appends the memory of p.runs to p.iov, in pieces of at most 256 KiB. It looks up successive runs of one
// region at once: with small blocks, a look-up for each run took a third of the time that a stream spends outside the
// kernel.
func (p *pieces) resolve(find func(plan.Run) ([]byte, bool), side string) transfer.Cause {
	for rest := p.runs; len(rest) > 0; {
		hull, n := rest[0], 1
		for ; n < len(rest); n++ {
			wider, ok := hull.Hull(rest[n])
			if !ok {
				break
			}
			hull = wider
		}
		b, ok := find(hull)
		if !ok || uint64(len(b)) != hull.Len {
			return transport.Gone(side, hull)
		}
		for _, r := range rest[:n] {
			p.add(r.In(hull, b))
			p.at += r.Len
		}
		rest = rest[n:]
	}
	return transfer.Cause{}
}

func (p *pieces) add(b []byte) {
	for len(b) > 0 {
		n := min(len(b), piece)
		p.iov = append(p.iov, sys.MakeIovec(b[:n]))
		b = b[n:]
	}
}

// drop drops the references to memory, so that no stale mapping looks alive.
func (p *pieces) drop() {
	clear(p.iov)
	p.iov = p.iov[:0]
}

// forget makes ready for another slice.
func (p *pieces) forget() {
	p.drop()
	p.at = 0
}

// small says whether length bytes in p.runs, and more runs to come, are better moved through a buffer.
func (p *pieces) small(length uint32, staged int) bool {
	return p.at < uint64(length) || staged > 0 && int(length) < staged*len(p.runs)
}

// zeros stand in for bytes that a frame promised and that cannot be sent.
var zeros [piece]byte

// appendRepeated appends n bytes to iov, which repeat b.
func appendRepeated(iov []sys.Iovec, b []byte, n int) []sys.Iovec {
	for n > 0 {
		part := b[:min(len(b), n)]
		iov = append(iov, sys.MakeIovec(part))
		n -= len(part)
	}
	return iov
}
