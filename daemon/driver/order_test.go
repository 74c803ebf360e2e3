package driver

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// scripted is a machine that answers the first event with its effects, and everybody whom they reach.
type scripted struct {
	clients
	effects []transfer.Effect
	log     []string
}

func (s *scripted) Step(transfer.Time, transfer.Event) []transfer.Effect {
	out := s.effects
	s.effects = nil
	return out
}

func (s *scripted) Complete(e transfer.Complete) {
	s.log = append(s.log, fmt.Sprint("complete ", e.UserData))
}
func (s *scripted) Rouse(e transfer.Rouse) {
	s.log = append(s.log, fmt.Sprint("rouse ", e.UserData))
}
func (s *scripted) Ring()       { s.log = append(s.log, "ring") }
func (s *scripted) Dial(string) {}

func (s *scripted) Barred(string, string) string { return "" }
func (s *scripted) Flush()                       { s.log = append(s.log, "sent") }
func (s *scripted) Queue(_ string, _ uint64, m transfer.Msg, _ bool) {
	s.log = append(s.log, fmt.Sprintf("%T", m))
}

// A client does not wait for the system call by which the peer learns that all is over; for the rest, order stays.
func TestClientsHearBeforeTheLastWordIsSent(t *testing.T) {
	s := &scripted{effects: []transfer.Effect{
		transfer.Send{Msg: &transfer.MsgGo{}}, transfer.Send{Msg: &transfer.MsgEnd{}}, transfer.Complete{UserData: 1},
		transfer.Send{Msg: &transfer.MsgEndAck{}}, transfer.Send{Msg: &transfer.MsgParked{}}, transfer.Complete{UserData: 2},
	}}
	d := New(Config{Machine: s, Sessions: s, Peers: s})
	d.Queue(transfer.Tick{})
	d.Flush()
	want := []string{"*transfer.MsgGo", "complete 1", "ring", "*transfer.MsgParked", "complete 2", "ring", "*transfer.MsgEnd", "*transfer.MsgEndAck", "sent"}
	if !slices.Equal(s.log, want) {
		t.Errorf("%q, want %q", s.log, want)
	}
}

// What several events have to say to peers goes out together.
func TestMessagesOfABatchAreSentTogether(t *testing.T) {
	s := &scripted{effects: []transfer.Effect{transfer.Send{Msg: &transfer.MsgGo{}}}}
	d := New(Config{Machine: s, Sessions: s, Peers: s})
	d.Queue(transfer.Tick{})
	d.Post(func() { s.effects = []transfer.Effect{transfer.Send{Msg: &transfer.MsgSent{}}} })
	d.Queue(transfer.Tick{})
	d.Flush()
	if want := []string{"*transfer.MsgGo", "*transfer.MsgSent", "sent"}; !slices.Equal(s.log, want) {
		t.Errorf("%q, want %q", s.log, want)
	}
}

// script is a machine that answers each event with what the test says, and notes the events.
type script struct {
	answers map[transfer.Event][]transfer.Effect
	came    []transfer.Event
}

func (s *script) Step(_ transfer.Time, ev transfer.Event) []transfer.Effect {
	s.came = append(s.came, ev)
	return s.answers[ev]
}

// TestNothingComesBeforeTheAnswerToWhatIsMovedAtOnce, nor before Resume: neither what the same step caused nor what an
// earlier one did and still waits.
func TestNothingComesBeforeTheAnswerToWhatIsMovedAtOnce(t *testing.T) {
	fence := func(x transfer.XferID) transfer.Effect { return transfer.Fence{Leg: transfer.Leg{Xfer: x}} }
	fenced := func(x transfer.XferID) transfer.Event { return transfer.Fenced{Leg: transfer.Leg{Xfer: x}} }
	s := &script{answers: map[transfer.Event][]transfer.Effect{
		transfer.Tick{}:     {fence(1), fence(2)},
		fenced(1):           {fence(3), &transfer.MoveNow{}, fence(4)},
		transfer.MovedNow{}: {fence(5), transfer.Yield{}},
	}}
	New(Config{Machine: s}).step(transfer.Tick{})
	want := []transfer.Event{
		transfer.Tick{}, fenced(1), transfer.MovedNow{}, transfer.Resume{}, fenced(2), fenced(3), fenced(4), fenced(5),
	}
	if !reflect.DeepEqual(s.came, want) {
		t.Errorf("the machine was told\n%+v, want\n%+v", s.came, want)
	}
}
