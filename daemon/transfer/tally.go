package transfer

// Tally is what a machine holds, in numbers that, unlike a Snapshot, cost little to count.
type Tally struct {
	Offers     int // live ones, not counting items of pipes and lookup buffers
	Operations int // submitted by sessions and not released
}

// Tally counts. It may be called between two Steps only.
func (m *Machine) Tally() (t Tally) {
	for _, s := range m.sessions {
		t.Operations += len(s.ops)
		t.Offers += s.used[quotaOffers]
	}
	return t
}
