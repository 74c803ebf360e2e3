package tcp

import (
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// lot has a number of threads to lend to the goroutines of links. Those of plain links that get none wait in it
// together, without a thread. Waiting here costs one wake-up more than waiting in the kernel; waiting there, hundreds
// of idle peers would cost hundreds of threads.
type lot struct {
	threads int // how many there are to lend
	used    atomic.Int64

	mu     sync.Mutex
	poller *sys.Poller // nil: nobody has waited here yet
	spots  map[int]*spot
	ended  sync.WaitGroup
}

// spot is the reader and the writer that wait for a socket. nil: nobody does.
type spot struct{ read, write chan struct{} }

// take lends the caller a thread to wait with, if one is left. give takes it back.
func (l *lot) take() bool {
	if l.used.Add(1) <= int64(l.threads) {
		return true
	}
	l.used.Add(-1)
	return false
}

func (l *lot) give() { l.used.Add(-1) }

// full says whether all threads are lent, so that whoever can do without one should give it back.
func (l *lot) full() bool { return l.used.Load() >= int64(l.threads) }

// wait waits until the socket fd can be read or written, has failed or is shut down, and sometimes returns for no
// reason. False: it cannot be waited for here.
func (l *lot) wait(fd int, write bool) bool {
	ready := l.enter(fd, write)
	if ready == nil {
		return false
	}
	<-ready
	return true
}

// enter returns a channel that is closed once the socket is ready; nil: the socket cannot be waited for here.
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

// open starts the poller unless it runs. It is called with the lock held.
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
		if err != nil { // closed or broken: let everybody go
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

// wake releases the reader or writer of a socket, or both. If one of them still waits, it arms the socket again. It is
// called with the lock held.
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
		_ = l.poller.Disarm(fd) // fails if it could not be armed
		return
	}
	if l.poller.Arm(fd, s.read != nil, s.write != nil) != nil {
		l.wake(fd, true, true) // they try the socket, and wait elsewhere
	}
}

// close ends the poller. Nobody may wait any more.
func (l *lot) close() {
	l.mu.Lock()
	p := l.poller
	l.mu.Unlock()
	if p != nil {
		_ = p.Close()
		l.ended.Wait()
	}
}
