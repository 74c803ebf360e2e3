package driver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/local"
)

// answers returns what an effect is answered with, by a driver without transports.
func answers(t *testing.T, d *Driver, e transfer.Effect) transfer.Event {
	t.Helper()
	d.execute(e)
	if len(d.own) != 1 {
		t.Fatalf("%T is answered with %+v, want one event", e, d.own)
	}
	ev := d.own[0]
	d.own = d.own[:0]
	return ev
}

// TestNothingMovesWithoutATransport: a peer that chooses one that this node does not allow has no slice land, and no
// slice is said to be sent.
func TestNothingMovesWithoutATransport(t *testing.T) {
	d := New(Config{Sessions: &clients{}, PlanInline: 1 << 20})
	rank, blocks := oneBlock(t)
	key := transfer.SliceKey{Leg: transfer.Leg{Peer: "b", Xfer: 1, End: transfer.Consumer}}
	planned := answers(t, d, transfer.MakePlan{Leg: key.Leg, Producer: rank, Consumer: rank, Src: blocks, Dst: blocks})
	if ev := planned.(transfer.Planned); ev.Cause.Reason != transfer.OK {
		t.Fatal(ev.Cause)
	}
	landed := answers(t, d, transfer.Expect{Leg: key.Leg, Transport: "rdma"}).(transfer.SliceLanded)
	if landed.Key != key || landed.Cause.Reason != transfer.Unavailable || !strings.Contains(landed.Cause.Text, `"rdma" is not on this node's allow-list`) {
		t.Errorf("%+v", landed)
	}
	sent := answers(t, d, transfer.Post{Keys: []transfer.SliceKey{key}, Transport: "rdma"}).(transfer.SliceSent)
	if sent.Key != key || sent.Cause.Reason != transfer.Unavailable {
		t.Errorf("%+v", sent)
	}
}

// TestAPeerCannotChooseWhatServesOneNodeAlone: nothing would come, and the take would wait for its deadline.
func TestAPeerCannotChooseWhatServesOneNodeAlone(t *testing.T) {
	carrier, err := local.New(local.Config{Workers: 1, Sink: new(sinkTo)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = carrier.Close() }()
	d := New(Config{Sessions: &clients{}, PlanInline: 1 << 20, Transports: []transport.Transport{carrier}})
	rank, blocks := oneBlock(t)
	key := transfer.SliceKey{Leg: transfer.Leg{Peer: "b", Xfer: 1, End: transfer.Consumer}}
	answers(t, d, transfer.MakePlan{Leg: key.Leg, Producer: rank, Consumer: rank, Src: blocks, Dst: blocks})
	landed := answers(t, d, transfer.Expect{Leg: key.Leg, Transport: "local"}).(transfer.SliceLanded)
	if landed.Key != key || landed.Cause.Reason != transfer.Unavailable || !strings.Contains(landed.Cause.Text, `node "b" chose transport "local"`) {
		t.Errorf("%+v", landed)
	}
}

// TestInlineWithoutAPlan: what rides inside a grant goes nowhere when its plan is gone.
func TestInlineWithoutAPlan(t *testing.T) {
	d := New(Config{Sessions: &clients{}})
	leg := transfer.Leg{Peer: "b", Xfer: 1, End: transfer.Consumer}
	written := answers(t, d, transfer.WriteInline{Leg: leg, Seg: 2, Data: make([]byte, 8)}).(transfer.InlineWritten)
	if written.Leg != leg || written.Seg != 2 || written.Cause.Reason != transfer.NotFound {
		t.Errorf("%+v", written)
	}
	leg.End = transfer.Producer
	read := answers(t, d, transfer.ReadInline{Leg: leg, Seg: 2}).(transfer.InlineRead)
	if read.Leg != leg || read.Seg != 2 || read.Cause.Reason != transfer.NotFound || read.Data != nil {
		t.Errorf("%+v", read)
	}
}

// TestEachRankHasItsOwnMemory: wherever it stands in the list. A rank that is not in it, or whose session is not on
// this node, has none.
func TestEachRankHasItsOwnMemory(t *testing.T) {
	c := &clients{mem: map[transfer.SessionID][]byte{0: {9}, 10: {0}, 13: {3}, 15: {5}}}
	list := []transfer.RankLayout{{Rank: 5, Session: 15}, {Rank: 1}, {Rank: 3, Session: 13}, {Rank: 0, Session: 10}}
	s := segment{sessions: c, src: list, dst: list}
	for side, resolve := range map[string]func(plan.Run) ([]byte, bool){"source": s.Src, "destination": s.Dst} {
		for rank, want := range map[uint32]string{0: "[0] true", 1: "[] false", 2: "[] false", 3: "[3] true", 5: "[5] true", 15: "[] false"} {
			b, ok := resolve(plan.Run{Rank: rank, Len: 1})
			if got := fmt.Sprint(b, ok); got != want {
				t.Errorf("%s of rank %d: %s, want %s", side, rank, got, want)
			}
		}
	}
}
