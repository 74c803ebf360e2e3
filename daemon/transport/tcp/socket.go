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

// Why a guarded read or write ended early.
var (
	errFenced = errors.New("fenced")
	errFault  = errors.New("memory is not accessible")
)

// These limit what one system call moves. More than perCall would evict what was just copied. Bytes with checksums are
// read again, so they move in smaller calls, to be found in the cache: with half or twice perSummed, two streams over
// loopback reach 0.86 or 0.94 of the rate.
const (
	perCall   = 1 << 20
	perSummed = 2 * piece
)

// socket is one direction of a plain connection, for one goroutine. It polls the socket for a short time before it
// waits in the kernel: a stream at full speed is never empty for long, and a sleep costs more than the wait.
type socket struct {
	wire   *wire
	sends  bool
	spin   time.Duration
	lowat  int  // SO_RCVLOWAT as set on the socket
	marked bool // lowat can be set on this socket
	active bool // counted in crowd.streaming
	lot    *lot
	crowd  *crowd
	beat   *pulse.Beat
	placed bool // holds a thread of lot
	stint  stint
	paused func() // called before each wait, also before one that polls; may be nil
	parked func() // called before a wait that may be long; may be nil
	rested func() // called when there is nothing to move for now; may be nil

	iov   []sys.Iovec  // what is left to move
	left  int          // bytes of iov to wait for
	slice *fence.Slice // owner of the memory in iov, entered around each system call; nil: our own memory
	sums  *sums        // of what was moved; nil: no checksums
	more  bool         // another send follows at once
	extra int          // bytes at the end of iov to take if they are there, but not to wait for
	moved int          // bytes so far
	since time.Time    // when the socket was first found not ready; zero: it is
	err   error
}

func newSocket(w *wire, sends bool, t *Transport, b *pulse.Beat) *socket {
	return &socket{wire: w, sends: sends, spin: t.cfg.Spin, lot: &t.lot, crowd: &t.crowd, beat: b, lowat: 1, marked: !sends}
}

// move sends or receives all of iov. The last s.extra bytes of iov are optional, in this call alone. It consumes iov;
// s.moved says how far it came. The error is errFenced, errFault, io.EOF or the connection's.
func (s *socket) move(iov []sys.Iovec, slice *fence.Slice, sums *sums) error {
	s.iov, s.left, s.slice, s.sums = iov, sys.IovecBytes(iov)-s.extra, slice, sums
	s.extra = 0
	s.moved, s.since, s.err = 0, time.Time{}, nil
	if slice != nil {
		s.stream()
	}
	for s.left > 0 && s.err == nil {
		errno := s.call()
		switch {
		case errno == 0 || s.err != nil:
			s.beat.Tick() // a peer may send or take so little each time that a frame takes long without one wait
			if s.active {
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

// call makes one system call, with the slice entered. Between calls nothing touches its memory, however long the peer
// takes.
func (s *socket) call() (errno syscall.Errno) {
	if s.wire.over.Load() {
		s.err = net.ErrClosed // the kernel would still hand over what has arrived, as long as more comes
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

// stream says that the payloads of slices are moved from now on.
func (s *socket) stream() {
	if !s.active {
		s.active = true
		s.crowd.streaming.Add(1)
		s.stint.begin()
	}
}

// rest is called when there is nothing to move for now.
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

// end is called when nothing will be moved any more.
func (s *socket) end() {
	s.rest()
	s.unplace()
}

// pause is called before each wait, also before one that polls.
func (s *socket) pause() {
	if s.paused != nil {
		s.paused()
	}
}

// patience is the longest that a wait should take while the peer is busy with the same stream.
const patience = time.Millisecond

// wait waits until another system call is worthwhile.
func (s *socket) wait() {
	s.since = time.Time{}
	s.pause()
	s.mark()
	if !s.place() || !s.waitFor(patience) {
		s.park()
		s.waitFor(forever)
	}
	s.unplace() // others may need its thread
}

// waitFor waits with a thread if the socket has one, else in the lot. The lot has no time limit, so d must then be
// forever.
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

// spinning says whether to poll again at once.
func (s *socket) spinning() bool {
	if s.spin <= 0 || s.crowd.crowded() {
		return false
	}
	if s.since.IsZero() {
		s.pause() // while more keeps coming, polling may never end in a wait
		s.since = time.Now()
	}
	return time.Since(s.since) < s.spin
}

// mark lets the kernel wake a reader only for as much as is worth a call: each wake-up costs as much as copying tens of
// KiB. The kernel wakes it sooner when the socket can hold no more.
func (s *socket) mark() {
	want := min(s.left, s.most())
	if !s.marked || want == s.lowat {
		return
	}
	s.lowat = want
	// If it cannot be set, there are more wake-ups, and nothing else changes.
	s.marked = sys.SetRcvLowat(uintptr(s.wire.fd), want) == nil
}

// most is how much one call moves at most, apart from header and trailer.
func (s *socket) most() int {
	if s.sums != nil {
		return perSummed
	}
	return perCall
}

// window returns the front of iov that one call should move: most bytes, and a header and a trailer.
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
