package tcp

import (
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/blockcopy"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// scatter is the buffer for the runs of one copy.
type scatter struct{ runs []blockcopy.Run }

// copy moves src to the front of iov, as far as that goes, and returns what remains of both.
func (c *scatter) copy(iov []sys.Iovec, src []byte) (rest []sys.Iovec, left []byte, err error) {
	c.runs = c.runs[:0]
	for len(src) > 0 && len(iov) > 0 {
		dst := iov[0].Bytes()
		n := min(len(dst), len(src))
		c.runs = append(c.runs, blockcopy.Run{Dst: dst[:n], Src: src[:n]})
		src = src[n:]
		iov = sys.Advance(iov, n)
	}
	_, err = blockcopy.CopyRuns(c.runs, nil)
	clear(c.runs)
	return iov, src, err
}

// recvStaged reads into a buffer and copies from there, for the same reasons as sendStaged. When it returns errFenced,
// errFault or gone, the whole frame has been read.
func (r *receiver) recvStaged(seg *segment, h *header, trailer []byte) error {
	rest, left := r.mem.iov, int(h.length)
	buf := r.buffer()
	for left > 0 {
		n := min(left, recvStep)
		if r.sock != nil {
			r.sock.stream()
		}
		err := r.read(buf[:n])
		if err != nil {
			return err
		}
		left -= n
		if r.crc {
			r.sums.add(buf[:n])
		}
		for b := buf[:n]; len(b) > 0 && err == nil; {
			rest, b, err = r.place(seg, h, rest, b)
		}
		if err != nil {
			r.ch.count.discarded.Add(uint64(n))
			if e := r.discard(h, int(h.length)-left); e != nil {
				return e
			}
			return err
		}
	}
	return r.read(trailer)
}

// place copies b to the front of iov, as far as that goes, and returns what remains of both. If iov is empty, it looks up
// the next runs.
func (r *receiver) place(seg *segment, h *header, iov []sys.Iovec, b []byte) (rest []sys.Iovec, left []byte, err error) {
	if !r.slice.Enter() {
		return nil, nil, errFenced
	}
	var cause transfer.Cause
	if len(iov) == 0 {
		r.mem.drop()
		cause = r.look(seg, h)
		iov = r.mem.iov
	}
	if cause.Reason == transfer.OK {
		rest, left, err = r.scatter.copy(iov, b)
	}
	if !r.slice.Leave() {
		return nil, nil, errFenced
	}
	switch {
	case cause.Reason != transfer.OK:
		return nil, nil, gone(cause)
	case err != nil:
		return nil, nil, errFault
	}
	return rest, left, nil
}

// recvStep is how much is read before it is copied.
const recvStep = 256 << 10
