package transfer

// Tally is what a machine holds, in numbers that cost little to count, unlike a Snapshot.
type Tally struct {
	Offers     int // live ones; items of pipes and lookup buffers are none
	Operations int // submitted by sessions and not released
}

// Tally counts. It belongs between two Steps.
func (m *Machine) Tally() (t Tally) {
	for _, s := range m.sessions {
		t.Operations += len(s.ops)
		if s.role != Endpoint {
			t.Offers += s.used[quotaOffers]
		}
	}
	return t
}
