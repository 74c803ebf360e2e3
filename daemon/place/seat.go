package place

import (
	"runtime"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// Seat is where a goroutine's thread runs. For one goroutine, which gives it up (Leave) before it ends or when it waits for long.
//
// A goroutine with a seat is locked to its thread. The thread goes back to Go's scheduler with the CPUs it had, or not at all: when
// they cannot be restored, the goroutine keeps it, and the thread ends with the goroutine.
type Seat struct {
	p     *Places
	at    int      // spot, Anywhere: none
	home  sys.CPUs // what the thread had
	taken bool     // the goroutine is locked
}

// Seat returns a seat that is nowhere yet.
func (p *Places) Seat() Seat { return Seat{p: p, at: Anywhere} }

// Take moves the goroutine's thread to a spot. Anywhere leaves it where it is, and so does a kernel that refuses.
func (s *Seat) Take(at int) {
	if at == Anywhere || at == s.at || s.p == nil {
		return
	}
	if !s.taken {
		runtime.LockOSThread()
		home, err := sys.ThreadCPUs()
		if err != nil {
			runtime.UnlockOSThread()
			return
		}
		s.home, s.taken = home, true
	}
	if sys.SetThreadCPUs(s.p.spots[at].cpus) != nil {
		s.Leave() // CPUs can have been taken away
		return
	}
	s.count(-1)
	s.at = at
	s.count(1)
}

// Leave gives the thread back.
func (s *Seat) Leave() {
	if !s.taken {
		return
	}
	s.count(-1)
	s.at = Anywhere
	if sys.SetThreadCPUs(s.home) != nil {
		return
	}
	s.taken = false
	runtime.UnlockOSThread()
}

// Moved notes that the goroutine moved n bytes whose memory is at the spot at.
func (s *Seat) Moved(at int, n uint64) {
	if s.p != nil && at != Anywhere && at == s.at {
		s.p.moved(at, n)
	}
}

// At returns the spot, Anywhere when there is none.
func (s *Seat) At() int {
	if s.p == nil {
		return Anywhere
	}
	return s.at
}

func (s *Seat) count(n int64) {
	if s.at != Anywhere {
		s.p.spots[s.at].threads.Add(n)
	}
}
