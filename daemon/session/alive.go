package session

import (
	"fmt"
	"os"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// process waits for the end of a client's process. A nil one has nothing to wait for.
type process struct {
	file *os.File
	done chan struct{}
}

// watchProcess calls end once the process behind pidfd has ended. It takes pidfd over; -1 is none. The end of the connection is
// noticed by whoever reads it; but a child that the process forked keeps that open.
func watchProcess(pidfd int, end func(transfer.Cause)) (*process, error) {
	if pidfd < 0 {
		return nil, nil
	}
	file, err := sys.PollFile(pidfd, "pidfd")
	if err != nil {
		return nil, fmt.Errorf("watch the client's process: %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("watch the client's process: %w", err)
	}
	p := &process{file: file, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		ended := false
		err := raw.Read(func(fd uintptr) bool {
			alive, err := sys.PidfdAlive(int(fd))
			ended = err == nil && !alive
			return ended
		})
		if err == nil && ended {
			end(transfer.Cause{Reason: transfer.PeerGone, Text: processEnded})
		}
	}()
	return p, nil
}

const processEnded = "the process that opened the session has ended"

// gone says whether the process has ended. After stop it says what it did not know before: no.
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

func (p *process) stop() {
	if p != nil {
		_ = p.file.Close()
		<-p.done
	}
}
