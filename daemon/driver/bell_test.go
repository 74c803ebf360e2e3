package driver

import (
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Clients are woken at once for what is alone, or the last of a batch; for what comes before that together, before peers hear, and not after
// more than half a millisecond.
func TestClientsAreWokenForABatch(t *testing.T) {
	done := func(n uint64) []transfer.Effect { return []transfer.Effect{transfer.Complete{UserData: n}} }
	s := &scripted{effects: done(1)}
	d := New(Config{Machine: s, Sessions: s, Peers: s})
	turn := func(between ...func()) {
		d.Queue(transfer.Tick{})
		for _, f := range between {
			d.Post(f)
			d.Queue(transfer.Tick{})
		}
		d.Flush()
	}
	turn()
	want := []string{"complete 1", "ring", "sent"}

	s.effects = done(2)
	turn(func() { s.effects = done(3) }, func() {})
	want = append(want, "complete 2", "complete 3", "ring", "sent")

	s.effects = done(4)
	turn(func() { d.start = d.start.Add(-2 * time.Duration(ringWithin)) }, func() { s.effects = done(5) })
	want = append(want, "complete 4", "ring", "complete 5", "ring", "sent")

	if !slices.Equal(s.log, want) {
		t.Errorf("%q, want %q", s.log, want)
	}
}

// Who is about to have what it sleeps for is woken before it is there, unless other events come first.
func TestRousedForWhatComesNext(t *testing.T) {
	s := &scripted{}
	d := New(Config{Machine: s, Sessions: s, Peers: s})
	turn := func(more int, effects ...transfer.Effect) {
		s.effects = effects
		for range 1 + more {
			d.Queue(transfer.Tick{})
		}
		d.Flush()
	}
	turn(0, transfer.Rouse{UserData: 1}, transfer.Complete{UserData: 1})
	turn(1, transfer.Rouse{UserData: 2}, transfer.Complete{UserData: 2})
	if want := []string{"rouse 1", "complete 1", "ring", "sent", "complete 2", "ring", "sent"}; !slices.Equal(s.log, want) {
		t.Errorf("%q, want %q", s.log, want)
	}
}

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
