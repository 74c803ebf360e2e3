package ring

// always is the number of a sleeper that wants to be rung for everything that is published. A larger number stands for
// one sleep, which a single ring ends.
const always = 1

// nextSleep returns the number of the sleep after n.
func nextSleep(n uint32) uint32 { return max(n+1, always+1) }

// bell keeps one side from ringing the other more than once for each sleep: a ring is a system call, and a side that is
// on its way to look at the new entries needs no further one.
type bell struct{ rung uint32 }

// due reports whether to ring for what was just published; asleep is the other side's sleep word. After true the caller
// must ring.
func (b *bell) due(asleep uint32) bool {
	if asleep == 0 || asleep > always && asleep == b.rung {
		return false
	}
	b.rung = asleep
	return true
}
