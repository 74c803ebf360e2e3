package tcp

import (
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/blockcopy"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// scatter is the buffer for the runs of one copy.
type scatter struct{ runs []blockcopy.Run }

// copy moves all of src to the front of iov and returns what remains of iov.
func (c *scatter) copy(iov []sys.Iovec, src []byte) (rest []sys.Iovec, err error) {
	c.runs = c.runs[:0]
	for len(src) > 0 {
		dst := iov[0].Bytes()
		n := min(len(dst), len(src))
		c.runs = append(c.runs, blockcopy.Run{Dst: dst[:n], Src: src[:n]})
		src = src[n:]
		iov = sys.Advance(iov, n)
	}
	_, err = blockcopy.CopyRuns(c.runs, nil)
	clear(c.runs)
	if cap(c.runs) > transport.KeptRuns {
		c.runs = nil
	}
	return iov, err
}

// recvStaged reads into a buffer and copies from there, for the same reasons as sendStaged. When it returns errFenced
// or errFault, the whole frame has been read.
func (r *receiver) recvStaged(h *header, trailer []byte) error {
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
		if rest, err = r.place(rest, buf[:n]); err != nil {
			r.ch.count.discarded.Add(uint64(n))
			if e := r.discard(h, int(h.length)-left); e != nil {
				return e
			}
			return err
		}
	}
	return r.read(trailer)
}

// place copies b to the front of iov.
func (r *receiver) place(iov []sys.Iovec, b []byte) (rest []sys.Iovec, err error) {
	if r.crc {
		r.sums.add(b)
	}
	if !r.slice.Enter() {
		return nil, errFenced
	}
	rest, err = r.scatter.copy(iov, b)
	if !r.slice.Leave() {
		return nil, errFenced
	}
	if err != nil {
		return nil, errFault
	}
	return rest, nil
}

// recvStep is how much is read before it is copied.
const recvStep = 256 << 10
