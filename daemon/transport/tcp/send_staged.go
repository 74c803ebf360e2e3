package tcp

import (
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// sendStaged gathers the blocks in a buffer and sends that. TLS reads what it encrypts in steps of 16 KiB and may wait
// for the peer between them, when no fence could take the memory from it. And the kernel is slow with tiny blocks.
func (s *sender) sendStaged(tk *task, h *header) error {
	if s.stage == nil {
		s.stage = make([]byte, 0, headerSize+piece+maxTrailer)
	}
	rest, left, moved := s.mem.iov[1:], int(h.length), 0
	buf := append(s.stage[:0], s.head[:]...)
	for left > 0 {
		var err error
		at := len(buf)
		if buf, rest, err = s.fetch(tk, buf, rest, min(left, s.step())); err != nil {
			if e := s.pad(h, moved, status(err)); e != nil {
				return e
			}
			return err
		}
		if left -= len(buf) - at; left == 0 {
			buf = appendTrailer(buf, statusWhole, s.sums.done)
		}
		if s.sock != nil {
			s.sock.stream()
		}
		s.own = append(s.own[:0], sys.MakeIovec(buf))
		if err := s.write(s.own); err != nil {
			return err
		}
		moved += len(buf)
		buf = s.stage[:0]
	}
	return nil
}

// fetch appends bytes of the blocks to buf: n, or those of the last runs that were looked up. If iov is empty, it looks up
// the next ones.
func (s *sender) fetch(tk *task, buf []byte, iov []sys.Iovec, n int) (_ []byte, rest []sys.Iovec, err error) {
	if !tk.Enter() {
		return nil, nil, errFenced
	}
	var cause transfer.Cause
	if len(iov) == 0 {
		s.mem.drop()
		cause = s.look(tk)
		iov = s.mem.iov
	}
	at := len(buf)
	if cause.Reason == transfer.OK {
		buf, rest, err = gather(buf, iov, n)
	}
	if !tk.Leave() {
		return nil, nil, errFenced
	}
	switch {
	case cause.Reason != transfer.OK:
		return nil, nil, gone(cause)
	case err != nil:
		return nil, nil, errFault
	}
	if s.crc {
		s.sums.add(buf[at:])
	}
	return buf, rest, nil
}

// step is how much is gathered at a time.
func (s *sender) step() int {
	if s.sock == nil {
		return tlsStep
	}
	return piece
}

// tlsStep is a few TLS records: bytes should still be in the nearest cache when they are encrypted.
const tlsStep = 64 << 10
