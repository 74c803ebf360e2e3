package tcp

import (
	"runtime"
	"time"
)

// stint is how long the goroutine of a stream has gone on without making way for others. From one that has not for 10 ms and is
// in a system call, the runtime's monitor takes what it runs with, and looks after all of them every 20 us for a while then
// (forcePreemptNS, retake and sysmon in runtime/proc.go). With a few streams that while had no end, and its wake-ups took a
// fourteenth of the processors.
type stint struct{ since time.Time }

const (
	longest = 8 * time.Millisecond
	taken   = 20 * time.Millisecond // after so long the monitor has taken it from one that waits in the kernel
)

// begin is for a stream that was at rest. After a long one its goroutine has just been let on, and owes nobody a turn; a short one was
// spent in the kernel, with what it runs with.
func (s *stint) begin() {
	if now := time.Now(); now.Sub(s.since) > taken {
		s.since = now
	}
}

// tick makes way when it is time. It is called after something was moved, with no memory of clients entered.
func (s *stint) tick() {
	if now := time.Now(); now.Sub(s.since) > longest {
		s.since = now
		runtime.Gosched()
	}
}
