package driver

import (
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// stepper gives each step its own effects, each of which takes longer than a client may sleep on.
type stepper struct {
	scripted
	d     *Driver
	steps [][]transfer.Effect
}

func (s *stepper) Step(transfer.Time, transfer.Event) (out []transfer.Effect) {
	if len(s.steps) > 0 {
		out, s.steps = s.steps[0], s.steps[1:]
	}
	s.late()
	return out
}

func (s *stepper) late() { s.d.start = s.d.start.Add(-2 * time.Duration(ringWithin)) }

// What an event's own answers take counts as well, and what is run between events.
func TestClientsAreWokenWithinALongChain(t *testing.T) {
	for _, c := range []struct {
		what  string
		steps [][]transfer.Effect
		posts int
		want  []string
	}{
		{"answers", [][]transfer.Effect{
			{transfer.Complete{UserData: 1}, transfer.Yield{}}, {transfer.Complete{UserData: 2}}, nil,
		}, 0, []string{"complete 1", "ring", "complete 2", "ring", "sent"}},
		{"posts", [][]transfer.Effect{{transfer.Complete{UserData: 1}}, nil}, 2, []string{"complete 1", "post", "ring", "post", "sent"}},
	} {
		s := &stepper{steps: c.steps}
		s.d = New(Config{Machine: s, Sessions: s, Peers: s})
		s.d.Queue(transfer.Tick{})
		for range c.posts {
			s.d.Post(func() { s.late(); s.log = append(s.log, "post") })
		}
		s.d.Queue(transfer.Tick{})
		s.d.Flush()
		if !slices.Equal(s.log, c.want) {
			t.Errorf("%s: %q, want %q", c.what, s.log, c.want)
		}
	}
}
