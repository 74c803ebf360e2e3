package tcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// receiver is the receiving half of a link, for one goroutine.
type receiver struct {
	*link
	sock   *socket // nil: through Conn alone
	staged int
	near   near

	mem     pieces
	slice   fence.Slice // at hand
	inHand  bool        // there is one
	timed   bool        // the channel knows that this link receives
	got     int         // bytes that have landed, and that it does not know of
	unsaid  int         // slices that have landed since the driver was last woken
	whole   bool        // one of them was the last of its segment
	head    [headerSize]byte
	ahead   int // bytes of the next frame's head that came with the frame before
	trailer []byte
	sums    sums
	crc     bool // the frame at hand has checksums
	stage   []byte
	own     []sys.Iovec
	scatter scatter
}

func (r *receiver) init() {
	r.trailer = make([]byte, maxTrailer)
	r.near.init(r.ch.t)
}

// flush has the driver look at what has landed.
func (r *receiver) flush() {
	if r.unsaid > 0 {
		r.unsaid, r.whole = 0, false
		if r.timed {
			r.ch.arrived(r.got, r.inHand)
			r.got, r.timed = 0, r.inHand
		}
		r.ch.t.sink.Flush()
	}
}

// pause is called before a wait, however short. Somebody may wait for what is whole, while more of the rest is on its way.
func (r *receiver) pause() {
	if r.whole {
		r.flush()
	}
}

// run receives frames until the link fails, and returns why.
func (r *receiver) run() error {
	defer r.end()
	defer r.flush()
	for {
		if err := r.next(); err != nil {
			return err
		}
		r.rx.Tick()
		var h header
		if err := h.decode(&r.head); err != nil {
			return r.malformed(err)
		}
		in, seg, err := r.ch.t.expected(r.ch.channelKey, &h)
		if err != nil {
			return r.malformed(err)
		}
		if in == nil || !seg.claim(h.slice) {
			err = r.discard(&h, 0)
		} else {
			err = r.take(in, seg, &h)
		}
		if err != nil {
			return err
		}
	}
}

// next reads the head of a frame, or what is missing of it.
func (r *receiver) next() error {
	n := r.ahead
	if r.ahead = 0; n == len(r.head) {
		return nil
	}
	if r.sock == nil && r.near.thread {
		m, err := r.readSoon(r.head[n:])
		if n += m; err != nil || n == len(r.head) {
			return err
		}
		r.near.leave() // as a socket's rested
	}
	return r.read(r.head[n:])
}

// readSoon fills b through Conn, or as much of it as comes within the time for which a stream that goes on keeps its thread.
func (r *receiver) readSoon(b []byte) (int, error) {
	r.rx.Rest()
	defer r.rx.Rise()
	_ = r.Conn.SetReadDeadline(time.Now().Add(patience))
	n, err := io.ReadFull(r.Conn, b)
	_ = r.Conn.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// end is for when nothing comes any more.
func (r *receiver) end() {
	r.near.leave()
	if r.sock != nil {
		r.sock.end()
	}
}

// malformed notes that the peer does not keep to the protocol. It is said here: that a link is lost may be the end of its channel, or be
// another's fault by then. A peer whose links all end so, as often as they are opened, is named now and then.
func (r *receiver) malformed(err error) error {
	r.ch.count.bad.Add(1)
	if r.ch.count.malformed.Due() {
		r.ch.t.cfg.Log.Warn("malformed frame, data link closed", "peer", r.Peer, "epoch", r.Epoch, "link", r.Index, "error", err)
	}
	return fmt.Errorf("malformed: %w", err)
}

// take receives a slice that is expected and claimed.
func (r *receiver) take(in *inbound, seg *segment, h *header) error {
	key := seg.job.Key
	key.Slice, key.Attempt = h.slice, h.attempt
	if !in.leg.Add(&r.slice, key) { // it is fenced, and wants none of its slices any more
		return r.discard(h, 0)
	}
	defer r.mem.forget()
	if h.length >= worthHolding && !r.timed { // time is taken of what is worth it: a hand-over of KiBs is too short to be known
		r.timed = true
		r.ch.arriving()
	}
	r.inHand = true
	cause, err := r.payload(seg, h)
	r.inHand = false
	if err != nil {
		cause = transfer.Cause{Reason: transfer.PeerGone, Text: "data link lost: " + err.Error()}
	}
	if cause.Reason == transfer.OK {
		r.whole = seg.land(h.slice) || r.whole
		if r.timed {
			r.got += int(h.length)
		}
		r.ch.count.landedBytes.Add(uint64(h.length))
		r.ch.count.landedSlices.Add(1)
		r.slice.End(cause)
	} else {
		if cause.Reason == transfer.Corrupt {
			r.ch.count.corrupt.Add(1)
		}
		seg.release(h.slice, func() { r.slice.End(cause) })
	}
	r.unsaid++
	if cause.Reason == transfer.OK && r.sock != nil && h.length >= worthHolding && r.unsaid < batch {
		// The report can wait while more is coming: see batch. It does not wait for the peer: see parked.
		return nil
	}
	r.flush()
	return err
}

// worthHolding is the size from which slices are reported together. A small one may be all there is.
const worthHolding = 256 << 10

// payload moves the payload to its place and says whether it is good. The error is the link's; without one the whole frame
// was read.
func (r *receiver) payload(seg *segment, h *header) (transfer.Cause, error) {
	r.crc = h.flags&flagCRC != 0
	r.sums.reset(0, int(h.length))
	r.mem.runs = seg.job.Plan.Dst(int(h.slice), r.mem.runs[:0])
	if cause := r.mem.resolve(seg.job.Mem.Dst, "destination"); cause.Reason != transfer.OK {
		return cause, r.discard(h, 0)
	}
	spot := r.near.move(&r.mem, 0, h.length)
	trailer := r.trailer[:h.trailerSize()]
	var err error
	if r.sock == nil || r.mem.small(h.length, r.staged) {
		err = r.recvStaged(h, trailer)
	} else {
		err = r.recvDirect(h, trailer)
	}
	switch {
	case errors.Is(err, errFenced):
		return transfer.Cause{Reason: transfer.Cancelled, Text: stopped.Text}, nil
	case errors.Is(err, errFault):
		return transfer.Cause{Reason: transfer.Corrupt, Text: "destination " + errFault.Error()}, nil
	case err != nil:
		return transfer.Cause{}, err
	}
	r.near.seat.Moved(spot, uint64(h.length))
	return r.verdict(trailer)
}

// verdict reads the trailer.
func (r *receiver) verdict(trailer []byte) (transfer.Cause, error) {
	var want []uint32
	if r.crc {
		want = r.sums.done
	}
	status, wrong, err := readTrailer(trailer, want)
	switch {
	case err != nil:
		return transfer.Cause{}, r.malformed(err)
	case status == statusFault:
		return transfer.Cause{Reason: transfer.Corrupt, Text: "the sender could not read its memory"}, nil
	case status == statusCancelled:
		return transfer.Cause{Reason: transfer.Cancelled, Text: "the sender cancelled the slice"}, nil
	case wrong >= 0:
		return transfer.Cause{Reason: transfer.Corrupt, Text: fmt.Sprintf("checksum of bytes %d and on is wrong", wrong*piece)}, nil
	}
	return transfer.Cause{}, nil
}

// recvDirect lets the kernel write into the blocks. With errFenced and errFault the whole frame was read. In a stream at full speed the next
// head is there as well, and costs no call of its own, which would be one more that has acknowledgements sent.
func (r *receiver) recvDirect(h *header, trailer []byte) error {
	r.mem.iov = append(r.mem.iov, sys.MakeIovec(trailer))
	var s *sums
	if r.crc {
		s = &r.sums // one end sums while the other one does: the sooner it wakes, the better
	} else {
		r.mem.iov = append(r.mem.iov, sys.MakeIovec(r.head[:]))
		r.sock.extra = len(r.head)
	}
	err := r.sock.move(r.mem.iov, &r.slice, s)
	whole := int(h.length) + len(trailer)
	r.ahead = max(r.sock.moved-whole, 0)
	if errors.Is(err, errFenced) || errors.Is(err, errFault) {
		if e := r.discard(h, min(r.sock.moved, whole)); e != nil {
			return e
		}
	}
	return err
}

// discard reads the rest of a frame's payload and trailer, of which moved bytes were read.
func (r *receiver) discard(h *header, moved int) error {
	left := int(h.length) + h.trailerSize() - moved
	buf := r.buffer()
	for left > 0 {
		n := min(left, len(buf))
		if err := r.read(buf[:n]); err != nil {
			return err
		}
		r.ch.count.discarded.Add(uint64(n))
		left -= n
	}
	return nil
}

// buffer is our own memory for what does not go straight to its place.
func (r *receiver) buffer() []byte {
	if r.stage == nil {
		r.stage = make([]byte, piece)
	}
	return r.stage
}

// read fills b, which is our own memory.
func (r *receiver) read(b []byte) error {
	if r.sock == nil {
		r.rx.Rest()
		defer r.rx.Rise()
		_, err := io.ReadFull(r.Conn, b)
		return err
	}
	r.own = append(r.own[:0], sys.MakeIovec(b))
	return r.sock.move(r.own, nil, nil)
}
