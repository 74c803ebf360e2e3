package driver

import "github.com/kvpipe/kvpipe/daemon/transfer"

// Stats counts what the driver did since it began. Read it inside Do.
type Stats struct {
	Events      uint64
	Completions map[Outcome]uint64
	Bytes       uint64 // of completed takes, once per take
}

// Outcome is a completion's kind, for metrics: few values, never ids.
type Outcome struct {
	Status transfer.Status
	Reason transfer.Reason
}

func (s *Stats) complete(e transfer.Complete) {
	if s.Completions == nil {
		s.Completions = map[Outcome]uint64{}
	}
	if e.UserData == 0 {
		return // counted where it was asked for
	}
	s.Completions[Outcome{e.Status, e.Reason}]++
	s.Bytes += e.Bytes
}

// Stats returns the counters. Only inside Do.
func (d *Driver) Stats() Stats { return d.stats }
