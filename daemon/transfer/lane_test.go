package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestFairness: an engine that hands over a thousand slices does not keep another one's few waiting, and the window bounds
// what is posted at a time.
func TestFairness(t *testing.T) {
	const window = 8
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", WindowSlices: window, Random: func() uint64 { n++; return n }})
	l := oneRank(t)
	for i, name := range []string{"busy", "small", "decode"} {
		m.Step(1, transfer.SessionOpened{Session: transfer.SessionID(i + 1), Engine: name, Role: transfer.Worker, Credits: 100})
		m.Step(1, transfer.LayoutSet{Session: transfer.SessionID(i + 1), Layout: l})
	}
	slices := map[string]uint32{"busy": 1000, "small": 3}
	var flying []transfer.SliceKey
	order := map[transfer.XferID]string{}
	var posted []string
	var step func(ev transfer.Event)
	step = func(ev transfer.Event) {
		var answers []transfer.Event
		for _, e := range m.Step(1, ev) {
			switch e := e.(type) {
			case transfer.MakePlan:
				name := []string{"busy", "small"}[e.Producer[0].Session-1]
				order[e.Leg.Xfer] = name
				answers = append(answers, transfer.Planned{Leg: e.Leg, Seg: e.Seg, Transport: "local", Slices: slices[name], Bytes: uint64(slices[name]) << 10})
			case transfer.Post:
				for _, k := range e.Keys {
					flying = append(flying, k)
					posted = append(posted, order[k.Xfer])
				}
				if len(flying) > window {
					t.Fatalf("%d slices are posted, the window is %d", len(flying), window)
				}
			}
		}
		for _, a := range answers {
			step(a)
		}
	}
	for i, name := range []string{"busy", "small"} {
		blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(i)}}}
		token := []byte("0123456789abcdef")
		step(transfer.Submit{Session: transfer.SessionID(i + 1), UserData: 1, Op: &transfer.OfferOp{Key: []byte(name), Token: token, Sealed: true, Blocks: blocks}})
		step(transfer.Submit{Session: 3, UserData: uint64(i + 1), Op: &transfer.TakeOp{
			Key: []byte(name), Token: token, TakeID: uint64(i), LayerSlot: transfer.NoSlot, Blocks: blocks,
		}})
	}
	for len(flying) > 0 {
		k := flying[0]
		flying = flying[1:]
		step(transfer.SliceSent{Key: k})
	}
	if len(posted) != 1003 {
		t.Fatalf("%d slices posted, want 1003", len(posted))
	}
	last := 0
	for i, name := range posted {
		if name == "small" {
			last = i
		}
	}
	if last > 4*window {
		t.Errorf("the small engine's last slice was posted as number %d: %v", last, fmt.Sprint(posted[:last]))
	}
}
