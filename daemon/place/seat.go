package place

import (
	"runtime"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// Seat is where a goroutine's thread runs. It is for one goroutine, which must call Leave before it ends or waits for
// long.
//
// A goroutine with a seat is locked to its thread. Leave gives the thread back to Go's scheduler with the CPUs that it
// had before. If these cannot be restored, the goroutine keeps the thread, which then ends with the goroutine.
type Seat struct {
	p     *Places
	at    int      // the spot; Anywhere: none
	home  sys.CPUs // CPUs that the thread had before
	taken bool     // the goroutine is locked to the thread
}

// Seat returns a seat without a spot.
func (p *Places) Seat() Seat { return Seat{p: p, at: Anywhere} }

// Take moves the goroutine's thread to a spot. With Anywhere the thread stays where it is. If the kernel refuses, the
// seat is left.
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
		s.Leave() // CPUs can be taken away from the daemon
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

// Moved notes that the goroutine moved n bytes of memory at spot at. It counts only if the goroutine is at that spot.
func (s *Seat) Moved(at int, n uint64) {
	if s.p != nil && at != Anywhere && at == s.at {
		s.p.moved(at, n)
	}
}

// At returns the spot; Anywhere: there is none.
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
