package transfer

import "testing"

// TestAnEndIsCountedOnce: an end that is left while it waits for an item is forgotten with the last thing that it waited for, and its
// node has one end less then, not two.
func TestAnEndIsCountedOnce(t *testing.T) {
	m := New(Config{Node: "a", Random: func() uint64 { return 1 }})
	b := newPeer("b")
	m.peers["b"] = b
	name := placeName{name: "p"}
	k := &seeker{id: Leg{Peer: "b", Xfer: 1, End: Producer}, peer: b, match: MatchNext}
	m.seekers[k.id] = k
	b.seekers++
	m.beginSeek(k, name, endID{"b", 5})
	if b.ends != 1 || k.queued != queuedEarly {
		t.Fatalf("the node has %d ends, and the one that there is waits in list %d", b.ends, k.queued)
	}
	m.leave(k.place, k.end)
	if b.ends != 0 || len(m.places) != 0 {
		t.Errorf("the node has %d ends and there are %d places, want none", b.ends, len(m.places))
	}
}
