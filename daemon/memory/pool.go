package memory

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// These errors say why a registration failed. The texts that wrap them name values and limits.
var (
	ErrInvalid  = errors.New("memory cannot be registered")
	ErrQuota    = errors.New("memory quota reached")
	ErrNotFound = errors.New("no such region")
	ErrClosed   = errors.New("session is closing")
)

// Limits bound what regions keep. A region counts with its whole memfd. Zero means no limit.
type Limits struct {
	SessionBytes uint64 // bytes of one session
	TotalBytes   uint64 // of all sessions
	Regions      int    // of one session
	Mapped       int    // regions of all sessions mapped at a time; one owner may have half, one user three quarters
}

// Pool accounts for the memory that all sessions keep.
type Pool struct {
	mu     sync.Mutex
	limits Limits
	bytes  uint64
	mapped int          // regions
	owned  Shares[int]  // mapped regions by owner
	files  map[file]int // mapped regions by file

	punched map[file]chan struct{} // files that are losing pages right now; closed when those are gone

	punch func([]byte) error // sys.Punch; tests replace it

	warming  chan struct{}      // as many as regions are being warmed
	populate func([]byte) error // tests replace it
}

// NewPool returns an empty account.
func NewPool(l Limits) *Pool {
	return &Pool{
		limits: l, files: map[file]int{},
		punched: map[file]chan struct{}{}, punch: sys.Punch,
		warming: make(chan struct{}, warmAtOnce), populate: populate,
	}
}

// SetLimits changes the limits of future registrations.
func (p *Pool) SetLimits(l Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits = l
}

// Limits returns the limits in force.
func (p *Pool) Limits() Limits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limits
}

// Bytes returns how many bytes all sessions keep.
func (p *Pool) Bytes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// reserve accounts for a memfd of n bytes, size of them registered, and for its mapping. The session, one of owner's,
// keeps used bytes so far, in so many regions. leave and giveBack undo that.
func (p *Pool) reserve(owner string, size, n, used uint64, regions int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.limits
	half, most := (l.Mapped+1)/2, (3*l.Mapped+3)/4 // so that others always find room
	switch {
	case l.Regions > 0 && regions >= l.Regions:
		return fmt.Errorf("%w: %d regions are registered, the limit is %d: unregister some, or register fewer larger ones", ErrQuota, regions, l.Regions)
	case n > 0 && l.Mapped > 0 && p.owned.Owner(owner) >= half:
		return fmt.Errorf("%w: %d regions of this user and cgroup are mapped, the limit is %d, half of the %d of all sessions, which are half of vm.max_map_count when the daemon started: unregister some, register fewer larger ones, or raise that and start the daemon again",
			ErrQuota, p.owned.Owner(owner), half, l.Mapped)
	case n > 0 && l.Mapped > 0 && p.owned.User(owner) >= most:
		return fmt.Errorf("%w: %d regions of this user in all its cgroups are mapped, the limit is %d, three quarters of the %d of all sessions, which are half of vm.max_map_count when the daemon started: unregister some, register fewer larger ones, or raise that and start the daemon again",
			ErrQuota, p.owned.User(owner), most, l.Mapped)
	case n > 0 && l.Mapped > 0 && p.mapped >= l.Mapped:
		return fmt.Errorf("%w: %d regions of all sessions are mapped, the limit is %d, half of vm.max_map_count when the daemon started: unregister some, register fewer larger ones, or raise that and start the daemon again",
			ErrQuota, p.mapped, l.Mapped)
	case over(n, used, l.SessionBytes):
		return fmt.Errorf("%w: %d bytes, in a memfd of %d, and the session's %d are more than limits.session_pinned = %d: unregister some, or raise that", ErrQuota, size, n, used, l.SessionBytes)
	case over(n, p.bytes, l.TotalBytes):
		return fmt.Errorf("%w: %d bytes, in a memfd of %d, and the %d of all sessions are more than limits.total_pinned = %d: unregister some, or raise that", ErrQuota, size, n, p.bytes, l.TotalBytes)
	}
	p.bytes += n
	if n > 0 {
		p.mapped++
		p.owned.Add(owner, 1)
	}
	return nil
}

func (p *Pool) giveBack(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= n
}

// use notes that a region lies in a file. It waits while pages of the file are given back. So whoever looks at the pages
// after that sees which are missing, and loses no more of them.
func (p *Pool) use(f file) {
	p.mu.Lock()
	p.files[f]++
	punched := p.punched[f]
	p.mu.Unlock()
	if punched != nil {
		<-punched
	}
}

// leave notes that a region of owner, which lay in a file, is not mapped any more.
func (p *Pool) leave(owner string, f file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mapped--
	p.owned.Sub(owner, 1)
	if p.files[f]--; p.files[f] == 0 {
		delete(p.files, f)
	}
}

// punchAlone gives b back to the system. b lies in the only region of a file; alone is false, and nothing is done, if
// the file has another region. Whoever can write the file can make this take long, so only those who register the same
// file wait for it.
func (p *Pool) punchAlone(f file, b []byte) (alone bool, err error) {
	punched := make(chan struct{})
	p.mu.Lock()
	if p.files[f] > 1 {
		p.mu.Unlock()
		return false, nil
	}
	p.punched[f] = punched
	p.mu.Unlock()
	err = p.punch(b)
	p.mu.Lock()
	delete(p.punched, f)
	p.mu.Unlock()
	close(punched)
	return true, err
}

// over says whether n more bytes are too many. None are never.
func over(n, used, limit uint64) bool {
	return n > 0 && limit > 0 && (n > limit || used > limit-n)
}
