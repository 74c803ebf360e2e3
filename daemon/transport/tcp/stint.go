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

const longest = 8 * time.Millisecond

// begin is for a stream that was at rest: its goroutine has just been let on, and owes nobody a turn.
func (s *stint) begin() { s.since = time.Now() }

// tick makes way when it is time. It is called after something was moved, with no memory of clients entered.
func (s *stint) tick() {
	if now := time.Now(); now.Sub(s.since) > longest {
		s.since = now
		runtime.Gosched()
	}
}
