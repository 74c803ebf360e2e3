package tcp

import (
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// lot has a number of threads to spare for the goroutines of plain links, and is where those wait that get none: together, without a
// thread. To wait here costs a wake-up more than to wait in the kernel; hundreds of idle peers would cost hundreds of threads there.
type lot struct {
	threads int // that are to spare
	used    atomic.Int64

	mu     sync.Mutex
	poller *sys.Poller // nil: nobody has waited here yet
	spots  map[int]*spot
	ended  sync.WaitGroup
}

// spot is a socket and who waits for it: reader and writer. nil: nobody.
type spot struct{ read, write chan struct{} }

// take gives the caller a thread to wait with, if there is one to spare; give takes it back.
func (l *lot) take() bool {
	if l.used.Add(1) <= int64(l.threads) {
		return true
	}
	l.used.Add(-1)
	return false
}

func (l *lot) give() { l.used.Add(-1) }

// full tells whether who can do without a thread shall.
func (l *lot) full() bool { return l.used.Load() >= int64(l.threads) }

// wait waits until the socket fd can be read, or written, has failed or is shut down, and sometimes without a reason. False: it cannot be
// waited for here.
func (l *lot) wait(fd int, write bool) bool {
	ready := l.enter(fd, write)
	if ready == nil {
		return false
	}
	<-ready
	return true
}

// enter makes ready a channel that is closed once the socket is; nil: that cannot be.
func (l *lot) enter(fd int, write bool) (ready chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open() {
		return nil
	}
	s := l.spots[fd]
	if s == nil {
		s = &spot{}
		l.spots[fd] = s
	}
	if l.poller.Arm(fd, s.read != nil || !write, s.write != nil || write) != nil {
		l.wake(fd, true, true)
		return nil
	}
	ready = make(chan struct{})
	if write {
		s.write = ready
	} else {
		s.read = ready
	}
	return ready
}

// open begins to look after sockets, unless that has begun. It is called with the lock held.
func (l *lot) open() bool {
	if l.poller != nil {
		return true
	}
	p, err := sys.NewPoller()
	if err != nil {
		return false
	}
	l.poller, l.spots = p, map[int]*spot{}
	l.ended.Add(1)
	go func() { defer l.ended.Done(); l.run() }()
	return true
}

func (l *lot) run() {
	for {
		ready, err := l.poller.Wait()
		l.mu.Lock()
		if err != nil { // nobody waits any more, or shall
			for fd := range l.spots {
				l.wake(fd, true, true)
			}
			l.mu.Unlock()
			return
		}
		for _, r := range ready {
			l.wake(r.FD, r.Read, r.Write)
		}
		l.mu.Unlock()
	}
}

// wake lets those go on who wait for the socket, and looks further for the other. It is called with the lock held.
func (l *lot) wake(fd int, read, write bool) {
	s := l.spots[fd]
	if s == nil {
		return
	}
	if read && s.read != nil {
		close(s.read)
		s.read = nil
	}
	if write && s.write != nil {
		close(s.write)
		s.write = nil
	}
	if s.read == nil && s.write == nil {
		delete(l.spots, fd)
		_ = l.poller.Disarm(fd) // fails when it could not be armed
		return
	}
	if l.poller.Arm(fd, s.read != nil, s.write != nil) != nil {
		l.wake(fd, true, true) // they ask the socket, and wait elsewhere
	}
}

// close is for when nobody waits any more.
func (l *lot) close() {
	l.mu.Lock()
	p := l.poller
	l.mu.Unlock()
	if p != nil {
		_ = p.Close()
		l.ended.Wait()
	}
}
