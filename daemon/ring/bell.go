package ring

// always is what a sleeper says who wants to be rung for whatever is published. A larger number is that of one sleep, which one ring
// ends.
const always = 1

// nextSleep returns the number of the sleep after n.
func nextSleep(n uint32) uint32 { return max(n+1, always+1) }

// bell is what one side rings for the other. A side that is rung for every entry, while it is on its way to look at them, costs the
// ringer a system call for each.
type bell struct{ rung uint32 }

// due tells whether to ring for what was published just now, when the sleeper's word is asleep. Whoever is told yes has to.
func (b *bell) due(asleep uint32) bool {
	if asleep == 0 || asleep > always && asleep == b.rung {
		return false
	}
	b.rung = asleep
	return true
}
