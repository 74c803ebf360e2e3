package sys

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Poller tells which of many sockets are ready, each once for each time it is
// armed. A goroutine that waits for it holds no thread. Arm and Disarm are safe
// for concurrent use; Wait is for one goroutine.
type Poller struct {
	file   *os.File
	conn   syscall.RawConn
	events []unix.EpollEvent
	ready  []Ready
}

// Ready is a socket that can be read or written without blocking. One that has
// failed or is shut down counts as both.
type Ready struct {
	FD          int
	Read, Write bool
}

// NewPoller returns a poller at which no socket is armed.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	f, err := PollFile(fd, "epoll")
	if err != nil {
		return nil, err
	}
	rc, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("raw connection: %w", err)
	}
	return &Poller{file: f, conn: rc, events: make([]unix.EpollEvent, 64)}, nil
}

// Arm has Wait report, once, when the socket fd can be read, written, or
// either. It replaces what was armed for fd before.
func (p *Poller) Arm(fd int, read, write bool) error {
	e := unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLONESHOT}
	if read {
		e.Events |= unix.EPOLLIN
	}
	if write {
		e.Events |= unix.EPOLLOUT
	}
	err := p.control(unix.EPOLL_CTL_MOD, fd, &e)
	if err == unix.ENOENT {
		err = p.control(unix.EPOLL_CTL_ADD, fd, &e)
	}
	if err != nil {
		return fmt.Errorf("arm fd %d: %w", fd, err)
	}
	return nil
}

// Disarm forgets fd. It has to be called before fd is closed.
func (p *Poller) Disarm(fd int) error {
	if err := p.control(unix.EPOLL_CTL_DEL, fd, nil); err != nil {
		return fmt.Errorf("disarm fd %d: %w", fd, err)
	}
	return nil
}

func (p *Poller) control(op, fd int, e *unix.EpollEvent) error {
	var inner error
	if err := p.conn.Control(func(ep uintptr) { inner = unix.EpollCtl(int(ep), op, fd, e) }); err != nil {
		return err
	}
	return inner
}

// Wait parks the goroutine until sockets are ready and returns some of them,
// valid until the next call. After Close it returns an error.
func (p *Poller) Wait() ([]Ready, error) {
	n, failed := 0, error(nil)
	err := p.conn.Read(func(ep uintptr) bool {
		n, failed = unix.EpollWait(int(ep), p.events, 0)
		return n > 0 || failed != nil && failed != unix.EINTR
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("wait for sockets: %w", err)
	}
	p.ready = p.ready[:0]
	for _, e := range p.events[:n] {
		over := e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
		p.ready = append(p.ready, Ready{FD: int(e.Fd), Read: over || e.Events&unix.EPOLLIN != 0, Write: over || e.Events&unix.EPOLLOUT != 0})
	}
	return p.ready, nil
}

// Close ends Wait and forgets all sockets.
func (p *Poller) Close() error { return p.file.Close() }
