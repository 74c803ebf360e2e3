package tcp

import (
	"errors"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// sender is the sending half of a link, for one goroutine.
type sender struct {
	*link
	sock   *socket // nil: write through Conn
	crc    bool
	staged int
	near   near

	mem     pieces
	head    [headerSize]byte
	trailer []byte
	sums    sums
	stage   []byte      // header, up to 256 KiB of payload, trailer
	own     []sys.Iovec // for our own memory
	held    []*task     // ended, not reported yet
	sent    int         // payload bytes of held that were sent
}

func (s *sender) init() {
	s.trailer = make([]byte, 0, maxTrailer)
	s.held = make([]*task, 0, batch)
	s.near.init(s.ch.t)
}

// run sends slices until the link fails, and returns why.
func (s *sender) run() error {
	defer s.end()
	for {
		tk := s.ch.take(s.link, s.idle)
		if tk == nil {
			return errChannelOver
		}
		n, err := s.send(tk)
		s.sent += n
		s.held = append(s.held, tk)
		if err != nil {
			return err
		}
		if len(s.held) == cap(s.held) || s.sock == nil {
			s.flush()
		}
	}
}

// batch is how many slices of a stream are reported together. Each report wakes the driver, which on a busy machine
// costs as much as a tenth of moving a slice.
const batch = 8

// idle is called when there is nothing to send.
func (s *sender) idle() {
	s.flush()
	s.near.leave()
	if s.sock != nil {
		s.sock.rest()
	}
}

// end is called when nothing will be sent any more.
func (s *sender) end() {
	s.flush()
	s.near.leave()
	if s.sock != nil {
		s.sock.end()
	}
}

// flush reports the slices in held.
func (s *sender) flush() {
	if len(s.held) == 0 {
		return
	}
	for _, tk := range s.held {
		tk.End(tk.cause)
	}
	s.ch.done(s.held, s.sent)
	clear(s.held)
	s.held, s.sent = s.held[:0], 0
	s.ch.t.sink.Flush()
}

// send sends one frame, notes the outcome in the task, and returns how many payload bytes were sent. The error is the
// link's. A problem with the slice alone does not end the link.
func (s *sender) send(tk *task) (int, error) {
	key, p := tk.Key(), tk.job.Plan
	h := header{xfer: uint64(key.Xfer), seg: key.Seg, slice: key.Slice, attempt: key.Attempt, length: uint32(p.Slice(int(key.Slice)).Bytes)}
	if s.crc {
		h.flags = flagCRC
	}
	h.encode(&s.head)
	s.sums.reset(0, int(h.length))
	defer s.mem.forget()
	s.mem.iov = append(s.mem.iov[:0], sys.MakeIovec(s.head[:]))
	if cause := s.look(tk); cause.Reason != transfer.OK {
		tk.cause = cause
		return 0, nil
	}
	spot := s.near.move(&s.mem, 1, h.length) // 1: skip the header
	var err error
	if s.sock == nil || s.mem.small(h.length, s.staged) {
		err = s.sendStaged(tk, &h)
	} else {
		err = s.sendDirect(tk, &h)
	}
	switch {
	case err == nil:
		s.near.seat.Moved(spot, uint64(h.length))
		s.ch.count.sentBytes.Add(uint64(h.length))
		s.ch.count.sentSlices.Add(1)
		if key.Attempt > 0 {
			s.ch.count.resent.Add(1)
		}
		tk.cause = transfer.Cause{}
		return int(h.length), nil
	case errors.Is(err, errFenced):
		return 0, nil // the fence has reported it
	case errors.Is(err, errFault):
		tk.cause = transfer.Cause{Reason: transfer.Corrupt, Text: "source " + errFault.Error()}
		return 0, nil
	}
	if lost, ok := errors.AsType[gone](err); ok {
		tk.cause = transfer.Cause(lost)
		return 0, nil
	}
	// The receiver accepts a frame only with its trailer, so one that was not sent whole has not arrived.
	tk.cause = transfer.Cause{Reason: transfer.PeerGone, Text: "data link lost: " + err.Error()}
	return 0, err
}

// look finds the memory of the slice's next runs.
func (s *sender) look(tk *task) transfer.Cause {
	return s.mem.look(tk.job.Plan.SrcFrom, int(tk.Key().Slice), tk.job.Mem.Src, "source")
}

// sendDirect names the blocks to the kernel. When it returns errFenced or errFault, the frame was either not begun, or
// is complete on the wire: padded with zeros and marked as bad.
func (s *sender) sendDirect(tk *task, h *header) error {
	sock := s.sock
	s.trailer = s.trailer[:0]
	if s.crc {
		s.sums.reset(headerSize, int(h.length))
		sock.more = true
	} else {
		// The trailer is known beforehand, so it goes in the same call.
		s.trailer = appendTrailer(s.trailer, statusWhole, nil)
		s.mem.iov = append(s.mem.iov, sys.MakeIovec(s.trailer))
	}
	err := sock.move(s.mem.iov, &tk.Slice, s.active())
	sock.more = false
	switch {
	case errors.Is(err, errFenced) || errors.Is(err, errFault):
		if e := s.pad(h, sock.moved, status(err)); e != nil {
			return e
		}
	case err == nil && s.crc:
		s.trailer = appendTrailer(s.trailer, statusWhole, s.sums.done)
		s.own = append(s.own[:0], sys.MakeIovec(s.trailer))
		return sock.move(s.own, nil, nil)
	}
	return err
}

func (s *sender) active() *sums {
	if s.crc {
		return &s.sums
	}
	return nil
}

func status(err error) uint32 {
	if errors.Is(err, errFenced) {
		return statusCancelled
	}
	return statusFault
}

// pad completes a frame of which moved bytes were sent. If none were, there is nothing to complete. If the payload went
// out whole and part of the trailer too, the rest of that trailer follows.
func (s *sender) pad(h *header, moved int, status uint32) error {
	const end = headerSize
	whole := end + int(h.length)
	if moved == 0 {
		return nil
	}
	s.own = s.own[:0]
	if moved < end {
		s.own = append(s.own, sys.MakeIovec(s.head[moved:]))
	}
	if moved < whole {
		s.own = appendRepeated(s.own, zeros[:], whole-max(moved, end))
	}
	if moved <= whole {
		s.trailer = appendTrailer(s.trailer[:0], status, make([]uint32, h.sums()))
	}
	s.own = append(s.own, sys.MakeIovec(s.trailer[max(0, moved-whole):]))
	return s.write(s.own)
}

// write sends our own memory.
func (s *sender) write(iov []sys.Iovec) error {
	if s.sock != nil {
		return s.sock.move(iov, nil, nil)
	}
	s.tx.Rest()
	defer s.tx.Rise()
	for i := range iov {
		if _, err := s.Conn.Write(iov[i].Bytes()); err != nil {
			return err
		}
	}
	return nil
}
