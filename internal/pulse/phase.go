package pulse

import "time"

// start is what Until counts from.
var start = time.Now()

// Until returns how long it is to the next multiple of d since this process began: more than 0, at most d. Timers that
// are set with it, and whose periods divide each other, go off together. An idle process is then woken once for all of
// them; waking it costs a hundred times what they do.
func Until(d time.Duration) time.Duration {
	past := time.Since(start) % d
	if past < 0 { // a test's clock may be behind
		past += d
	}
	return d - past
}
