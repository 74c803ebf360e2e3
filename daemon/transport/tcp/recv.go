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
	sock   *socket // nil: read through Conn
	staged int
	near   near

	mem     pieces
	slice   fence.Slice // the slice being received
	inHand  bool        // slice is in use
	timed   bool        // the channel counts this link as receiving
	got     int         // bytes that have landed and that the channel has not been told of
	unsaid  int         // slices that have ended since the driver was last woken
	whole   bool        // one of them completed its segment
	head    [headerSize]byte
	ahead   int // bytes of the next frame's header that came with this frame
	trailer []byte
	sums    sums
	crc     bool // the current frame has checksums
	stage   []byte
	own     []sys.Iovec
	scatter scatter
}

func (r *receiver) init() {
	r.trailer = make([]byte, maxTrailer)
	r.near.init(r.ch.t)
}

// flush has the driver process the reports of ended slices.
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

// pause is called before each wait, however short. If a segment is complete, somebody may be waiting for it, so it is
// reported now, even while more of the others is on its way.
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

// next reads the header of a frame, or what is missing of it.
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
		r.near.leave() // what rested does for a socket
	}
	return r.read(r.head[n:])
}

// readSoon reads through Conn until b is full or patience is over. For that long a stream that goes on keeps its
// thread.
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

// end is called when nothing more will arrive.
func (r *receiver) end() {
	r.near.leave()
	if r.sock != nil {
		r.sock.end()
	}
}

// malformed notes that the peer broke the protocol. It logs that here: when the loss of the link is handled, it can
// look like the end of the channel or somebody else's fault. The damper limits the warnings about a peer whose links
// all end this way each time they are reopened.
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
	if !in.leg.Add(&r.slice, key) { // fenced: none of its slices is wanted any more
		return r.discard(h, 0)
	}
	defer r.mem.forget()
	if h.length >= worthHolding && !r.timed { // a hand-over of KiBs is too short to be measured
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
		// The report can wait while more is coming (see batch). It does not wait for a slow peer (see parked).
		return nil
	}
	r.flush()
	return err
}

// worthHolding is the size from which slices are reported together. A smaller one may be all that there is.
const worthHolding = 256 << 10

// payload moves the payload to its place and says whether it is good. The error is the link's; without one, the whole
// frame was read.
func (r *receiver) payload(seg *segment, h *header) (transfer.Cause, error) {
	r.crc = h.flags&flagCRC != 0
	r.sums.reset(0, int(h.length))
	if cause := r.look(seg, h); cause.Reason != transfer.OK {
		return cause, r.discard(h, 0)
	}
	spot := r.near.move(&r.mem, 0, h.length)
	trailer := r.trailer[:h.trailerSize()]
	var err error
	if r.sock == nil || r.mem.small(h.length, r.staged) {
		err = r.recvStaged(seg, h, trailer)
	} else {
		err = r.recvDirect(h, trailer)
	}
	switch {
	case errors.Is(err, errFenced):
		return transfer.Cause{Reason: transfer.Cancelled, Text: stopped.Text}, nil
	case errors.Is(err, errFault):
		return transfer.Cause{Reason: transfer.Corrupt, Text: "destination " + errFault.Error()}, nil
	case err != nil:
		if lost, ok := errors.AsType[gone](err); ok {
			return transfer.Cause(lost), nil
		}
		return transfer.Cause{}, err
	}
	r.near.seat.Moved(spot, uint64(h.length))
	return r.verdict(trailer)
}

// look finds the memory of the slice's next runs.
func (r *receiver) look(seg *segment, h *header) transfer.Cause {
	return r.mem.look(seg.job.Plan.DstFrom, int(h.slice), seg.job.Mem.Dst, "destination")
}

// verdict reads the trailer and says whether the payload is good.
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

// recvDirect lets the kernel write into the blocks. When it returns errFenced or errFault, the whole frame has been
// read. In a stream at full speed the next header has arrived as well. It is read in the same call: a call of its own
// would be one more that makes the kernel send acknowledgements.
func (r *receiver) recvDirect(h *header, trailer []byte) error {
	r.mem.iov = append(r.mem.iov, sys.MakeIovec(trailer))
	var s *sums
	if r.crc {
		s = &r.sums // both ends sum at the same time, so this one should wake early: at the next header
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

// discard reads and drops the rest of a frame's payload and trailer, of which moved bytes were read.
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

// buffer returns our own memory, for what does not go straight to its place.
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
