package peer

import (
	"fmt"
	"testing"
)

// TestEpochsOfManyLostChannelsAreForgotten, and no others: by its epoch a peer's channel that this node lost is told
// from one that it still has.
func TestEpochsOfManyLostChannelsAreForgotten(t *testing.T) {
	m := &Manager{lost: map[string]uint64{}}
	for i := range uint64(maxLost) {
		m.remember(&channel{node: fmt.Sprint(i), epoch: 1})
		m.remember(&channel{node: fmt.Sprint(i), epoch: i + 2})
		if len(m.lost) != int(i)+1 || m.lost[fmt.Sprint(i)] != i+2 {
			t.Fatalf("%d are remembered of %d, the last as %d", len(m.lost), i+1, m.lost[fmt.Sprint(i)])
		}
	}
	m.remember(&channel{node: "one more", epoch: 7})
	m.remember(&channel{node: "one more", epoch: 8})
	if len(m.lost) != maxLost || m.lost["one more"] != 8 {
		t.Errorf("%d are remembered, the last as %d", len(m.lost), m.lost["one more"])
	}
}

// TestWhichOfTwoChannelsStays: both nodes must decide alike. A channel that is not up yet has no claim of its own.
func TestWhichOfTwoChannelsStays(t *testing.T) {
	for _, c := range []struct {
		insecure, up bool
		dialed       bool // the older one, by this node
		again        bool // the newer one, by this node
		want         bool
	}{
		{false, false, true, false, true}, // a comes before b, and dialed it
		{false, false, false, true, false},
		{false, true, true, true, false},
		{false, true, false, false, false},
		{true, false, true, false, true},
		{true, false, false, true, false},
		{true, false, false, false, false},
		{true, true, false, true, true},
		{true, true, false, false, true},
	} {
		m := &Manager{cfg: Config{Node: "a", Insecure: c.insecure}}
		old, newer := &channel{m: m, node: "b", dialed: c.dialed}, &channel{m: m, node: "b", dialed: c.again}
		old.up.Store(c.up)
		if got := m.keeps(old, newer); got != c.want {
			t.Errorf("%+v: the older one stays: %v", c, got)
		}
	}
}
