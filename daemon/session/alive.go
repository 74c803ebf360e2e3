package session

import (
	"fmt"
	"os"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// process waits for a client's process to end. A nil process has nothing to wait for.
type process struct {
	file *os.File
	done chan struct{}
}

// openProcess takes over pidfd. It returns nil for -1, no pidfd.
func openProcess(pidfd int) (*process, error) {
	if pidfd < 0 {
		return nil, nil
	}
	file, err := sys.PollFile(pidfd, "pidfd")
	if err != nil {
		return nil, fmt.Errorf("watch the client's process: %w", err)
	}
	return &process{file: file, done: make(chan struct{})}, nil
}

// watch calls end once the process has ended. Whoever reads the connection notices the connection's end, but a child
// that the process forked may keep it open.
func (p *process) watch(end func(transfer.Cause)) {
	if p == nil {
		return
	}
	go func() {
		defer close(p.done)
		ended := false
		raw, err := p.file.SyscallConn()
		if err == nil {
			err = raw.Read(func(fd uintptr) bool {
				alive, err := sys.PidfdAlive(int(fd))
				ended = err == nil && !alive
				return ended
			})
		}
		if err == nil && ended {
			end(transfer.Cause{Reason: transfer.PeerGone, Text: processEnded})
		}
	}()
}

const processEnded = "the process that opened the session has ended"

// gone reports whether the process has ended. After stop it is always false.
func (p *process) gone() bool {
	gone := false
	raw, err := p.file.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			alive, err := sys.PidfdAlive(int(fd))
			gone = err == nil && !alive
		})
	}
	return gone
}

// stop ends watch and waits until its goroutine has returned.
func (p *process) stop() {
	if p != nil {
		_ = p.file.Close()
		<-p.done
	}
}
