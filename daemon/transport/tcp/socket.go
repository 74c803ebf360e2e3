package tcp

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transport/fence"
	"github.com/kvpipe/kvpipe/internal/pulse"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// How a guarded read or write ended when not by itself.
var (
	errFenced = errors.New("fenced")
	errFault  = errors.New("memory is not accessible")
)

// What one system call moves at most. More than perCall evicts what was just copied. What is summed is read again, and goes by less to find
// it in the cache: with half or twice of perSummed two streams over loopback have 0.86 or 0.94 of its rate.
const (
	perCall   = 1 << 20
	perSummed = 2 * piece
)

// socket is one direction of a plain connection, for one goroutine. It asks the socket again and again for a short time
// before it waits in the kernel, because a stream at full speed is never empty for long and a sleep costs more than the
// wait.
type socket struct {
	wire   *wire
	sends  bool
	spin   time.Duration
	lowat  int  // as set on the socket
	marked bool // lowat can be set there
	active bool // counted in streaming
	lot    *lot
	crowd  *crowd
	beat   *pulse.Beat
	placed bool // has one of its threads
	stint  stint
	paused func() // called before each wait; may be nil
	parked func() // called before a wait that may be long; may be nil
	rested func() // called when there is nothing to move for now; may be nil

	iov   []sys.Iovec  // what is left to move
	left  int          // bytes of iov that are waited for
	slice *fence.Slice // owner of the memory in iov, asked before each system call; nil: our own memory
	sums  *sums        // of what was moved; nil: none
	more  bool         // another send follows at once
	extra int          // bytes at the end of iov that are taken if they are there, and not waited for
	moved int          // bytes so far
	since time.Time    // when the socket was first found not ready
	err   error
}

func newSocket(w *wire, sends bool, t *Transport, b *pulse.Beat) *socket {
	return &socket{wire: w, sends: sends, spin: t.cfg.Spin, lot: &t.lot, crowd: &t.crowd, beat: b, lowat: 1, marked: !sends}
}

// move sends or receives all of iov but what is extra, which counts for one move; it consumes iov, and moved says how far it came. The error is errFenced, errFault, io.EOF
// or the connection's.
func (s *socket) move(iov []sys.Iovec, slice *fence.Slice, sums *sums) error {
	s.iov, s.left, s.slice, s.sums = iov, sys.IovecBytes(iov)-s.extra, slice, sums
	s.extra = 0
	s.moved, s.since, s.err = 0, time.Time{}, nil
	if !s.active && slice != nil {
		s.active = true
		s.crowd.streaming.Add(1)
		s.stint.begin()
	}
	for s.left > 0 && s.err == nil {
		errno := s.call()
		switch {
		case errno == 0 || s.err != nil:
			if slice != nil {
				s.stint.tick()
			}
		case errno == syscall.EFAULT:
			s.err = errFault
		case errno != syscall.EAGAIN:
			s.err = errno
		case !s.spinning():
			s.wait()
		}
	}
	return s.err
}

// call makes one system call, with the slice's leave. Between calls nothing touches its memory, however long the peer takes.
func (s *socket) call() (errno syscall.Errno) {
	if s.wire.over.Load() {
		s.err = net.ErrClosed // what has arrived could still be read, as long as more comes
		return 0
	}
	if s.slice != nil {
		if !s.slice.Enter() {
			s.err = errFenced
			return 0
		}
		defer func() {
			if !s.slice.Leave() {
				s.err = errFenced
			}
		}()
	}
	win := window(s.iov, s.most())
	n, fd := 0, uintptr(s.wire.fd)
	if s.sends {
		n, errno = sys.Sendmsg(fd, win, s.more || len(win) < len(s.iov))
	} else {
		n, errno = sys.Recvmsg(fd, win)
	}
	if errno != 0 {
		return errno
	}
	if n == 0 {
		s.err = io.EOF
		return 0
	}
	if s.sums != nil && sumFront(s.sums, win, n) != nil {
		s.err = errFault
	}
	s.iov, s.left, s.moved, s.since = sys.Advance(s.iov, n), s.left-n, s.moved+n, time.Time{}
	return 0
}

// rest says that there is nothing to move for now.
func (s *socket) rest() {
	if s.active {
		s.active = false
		s.crowd.streaming.Add(-1)
	}
	if s.rested != nil {
		s.rested()
	}
	if s.placed && s.lot.full() {
		s.unplace()
	}
}

// end says that nothing will be moved any more.
func (s *socket) end() {
	s.rest()
	s.unplace()
}

// patience is how long a wait is expected to take at most while the peer is busy with the same stream.
const patience = time.Millisecond

// wait waits until the socket is worth a call.
func (s *socket) wait() {
	s.since = time.Time{}
	if s.paused != nil {
		s.paused()
	}
	s.mark()
	if !s.place() || !s.waitFor(patience) {
		s.park()
		s.waitFor(forever)
	}
	s.unplace() // others may need its thread
}

// waitFor waits with a thread if it has one, else in the lot, which knows forever alone.
func (s *socket) waitFor(d time.Duration) bool {
	s.beat.Rest()
	defer s.beat.Rise()
	if !s.placed && s.lot.wait(s.wire.fd, s.sends) {
		return true
	}
	return s.wire.wait(s.sends, d)
}

// place asks for a thread to wait with.
func (s *socket) place() bool {
	s.placed = s.placed || s.lot.take()
	return s.placed
}

func (s *socket) unplace() {
	if s.placed {
		s.placed = false
		s.lot.give()
	}
}

// park prepares for a wait that may be long.
func (s *socket) park() {
	if s.slice == nil && s.moved == 0 {
		s.rest()
	}
	if s.parked != nil {
		s.parked()
	}
}

// spinning tells whether to ask again at once.
func (s *socket) spinning() bool {
	if s.spin <= 0 || s.crowd.crowded() {
		return false
	}
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since) < s.spin
}

// mark has a reader woken only for what is worth a call: each wake-up costs as much as copying tens of KiB. The kernel wakes it sooner when
// the socket holds no more.
func (s *socket) mark() {
	want := min(s.left, s.most())
	if !s.marked || want == s.lowat {
		return
	}
	s.lowat = want
	// Without a mark more wake-ups are needed, and nothing else changes.
	s.marked = sys.SetRcvLowat(uintptr(s.wire.fd), want) == nil
}

// most is how much one call moves.
func (s *socket) most() int {
	if s.sums != nil {
		return perSummed
	}
	return perCall
}

// window returns as much of iov as one call shall move: most bytes, with a header and a trailer.
func window(iov []sys.Iovec, most int) []sys.Iovec {
	const slack = headerSize + maxTrailer
	n := 0
	for i := range iov {
		if n += iov[i].Size(); n > most+slack && i > 0 || i == sys.MaxIovecs {
			return iov[:i]
		}
	}
	return iov
}
