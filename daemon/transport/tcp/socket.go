package tcp

import (
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transport/fence"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// How a guarded read or write ended when not by itself.
var (
	errFenced = errors.New("fenced")
	errFault  = errors.New("memory is not accessible")
)

// perCall is how much one system call moves at most; more evicts what was just copied.
const perCall = 1 << 20

// socket is one direction of a plain connection, for one goroutine. It asks a non-blocking socket again and again for a
// short time before it waits in the poller, because a stream at full speed is never empty for long and a sleep
// costs more than the wait.
type socket struct {
	raw    syscall.RawConn
	sends  bool
	spin   time.Duration
	step   func(fd uintptr) bool // bound once: a closure per call would be garbage
	lowat  int                   // as set on the socket
	marked bool                  // lowat can be set there
	active bool                  // counted in streaming
	parked func()                // called before the poller is asked to wait; may be nil

	iov   []sys.Iovec  // what is left to move
	left  int          // bytes of iov
	slice *fence.Slice // owner of the memory in iov, asked before each system call; nil: our own memory
	sums  *sums        // of what was moved; nil: none
	more  bool         // another send follows at once
	moved int          // bytes so far
	since time.Time    // when the socket was first found not ready
	err   error
}

func newSocket(raw syscall.RawConn, sends bool, spin time.Duration) *socket {
	s := &socket{raw: raw, sends: sends, spin: spin, lowat: 1, marked: !sends}
	s.step = s.try
	return s
}

// move sends or receives all of iov, which it consumes; moved says how far it came. The error is errFenced, errFault, io.EOF
// or the connection's.
func (s *socket) move(iov []sys.Iovec, slice *fence.Slice, sums *sums) error {
	s.iov, s.left, s.slice, s.sums = iov, sys.IovecBytes(iov), slice, sums
	s.moved, s.since, s.err = 0, time.Time{}, nil
	if !s.active && slice != nil {
		s.active = true
		streaming.Add(1)
	}
	wait := s.raw.Read
	if s.sends {
		wait = s.raw.Write
	}
	if err := wait(s.step); err != nil {
		return err
	}
	return s.err
}

// try is what the poller calls, whenever the socket is ready. It returns false to be called again.
func (s *socket) try(fd uintptr) bool {
	for s.left > 0 && s.err == nil {
		errno := s.call(fd)
		switch {
		case errno == 0 || s.err != nil:
		case errno == syscall.EFAULT:
			s.err = errFault
		case errno != syscall.EAGAIN:
			s.err = errno
		case !s.spinning() && !s.mark(fd):
			s.park()
			return false
		}
	}
	return true
}

// call makes one system call, with the slice's leave. Between calls nothing touches its memory, however long the peer takes.
func (s *socket) call(fd uintptr) (errno syscall.Errno) {
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
	win := window(s.iov)
	n := 0
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

// streaming counts the sockets that move data now, and spinners is up to how many of them may spin: where they could take
// the processor from one another, waiting is faster.
var (
	streaming atomic.Int64
	spinners  = int64(max(runtime.NumCPU()/2, 1))
)

// rest says that there is nothing to move for now.
func (s *socket) rest() {
	if s.active {
		s.active = false
		streaming.Add(-1)
	}
}

// park prepares for a wait that may be long.
func (s *socket) park() {
	s.since = time.Time{}
	if s.slice == nil && s.moved == 0 {
		s.rest()
	}
	if s.parked != nil {
		s.parked()
	}
}

// spinning tells whether to ask again at once.
func (s *socket) spinning() bool {
	if s.spin <= 0 || streaming.Load() > spinners {
		return false
	}
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since) < s.spin
}

// mark makes the poller wake a reader only for what is worth a call. When it moved the mark, the socket must be asked once
// more: what came before that wakes nobody.
func (s *socket) mark(fd uintptr) (again bool) {
	want := min(s.left, piece)
	if !s.marked || want == s.lowat {
		return false
	}
	s.lowat = want
	// Without a mark more wake-ups are needed, and nothing else changes.
	s.marked = sys.SetRcvLowat(fd, want) == nil
	return s.marked
}

// window returns as much of iov as one call shall move.
func window(iov []sys.Iovec) []sys.Iovec {
	const slack = headerSize + maxTrailer
	n := 0
	for i := range iov {
		if n += iov[i].Size(); n > perCall+slack && i > 0 || i == sys.MaxIovecs {
			return iov[:i]
		}
	}
	return iov
}
