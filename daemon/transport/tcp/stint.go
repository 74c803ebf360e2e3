package tcp

import (
	"runtime"
	"time"
)

// stint is how long the goroutine of a stream has run without letting others run. When a goroutine has not yielded for
// 10 ms and is in a system call, the runtime's monitor takes its P away, and for a while then wakes every 20 us to look
// at all of them (forcePreemptNS, retake and sysmon in runtime/proc.go). With a few streams that while never ended, and
// the wake-ups took a fourteenth of the processors.
type stint struct{ since time.Time }

const (
	longest = 8 * time.Millisecond
	taken   = 20 * time.Millisecond // by then the monitor has taken the P of a goroutine that waits in the kernel
)

// begin is called when a stream that rested moves data again. After a long rest its goroutine has just been scheduled,
// and a new stint begins. A short rest was spent in the kernel with the P held, so it counts.
func (s *stint) begin() {
	if now := time.Now(); now.Sub(s.since) > taken {
		s.since = now
	}
}

// tick yields when it is time. It is called after something was moved, while no memory of clients is entered.
func (s *stint) tick() {
	if now := time.Now(); now.Sub(s.since) > longest {
		s.since = now
		runtime.Gosched()
	}
}
