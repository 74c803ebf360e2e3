package transfer_test

import (
	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// strained is a machine whose driver does what it is asked for, well or badly.
type strained struct {
	t      *rapid.T
	m      *transfer.Machine
	now    transfer.Time
	layout *layout.Layout
	bytes  uint64 // of each segment, in two slices
	fences []transfer.Leg

	// What the peer was told; of items alone, but for the first.
	xfers        []transfer.XferID
	homes, items []uint64
	keys, tokens [][]byte
}

func newStrained(t *rapid.T, l *layout.Layout, bytes uint64) *strained {
	n := uint64(0)
	return &strained{t: t, layout: l, bytes: bytes, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }})}
}

func (w *strained) step(ev transfer.Event) {
	w.now += transfer.Time(rapid.IntRange(0, 300).Draw(w.t, "later")) * transfer.Millisecond
	var answers []transfer.Event
	for _, e := range w.m.Step(w.now, ev) {
		switch e := e.(type) {
		case transfer.MakePlan:
			answers = append(answers, transfer.Planned{Leg: e.Leg, Seg: e.Seg, Transport: "tcp", Slices: 2, Bytes: w.bytes, Inline: rapid.Bool().Draw(w.t, "inline")})
		case transfer.ReadInline:
			answers = append(answers, transfer.InlineRead{Leg: e.Leg, Seg: e.Seg, Data: make([]byte, w.bytes)})
		case transfer.WriteInline:
			answers = append(answers, transfer.InlineWritten{Leg: e.Leg, Seg: e.Seg})
		case transfer.Post:
			for _, k := range e.Keys {
				answers = append(answers, transfer.SliceSent{Key: k})
			}
		case transfer.Expect:
			answers = append(answers, transfer.SliceLanded{Key: transfer.SliceKey{Leg: e.Leg, Seg: e.Seg, Slice: uint32(rapid.IntRange(0, 3).Draw(w.t, "slice"))}})
		case transfer.Fence:
			w.fences = append(w.fences, e.Leg)
		case transfer.Send:
			w.hear(e.Msg)
		case transfer.Dial:
			answers = append(answers, transfer.PeerUp{Node: "b", Epoch: 1, Hints: []string{"b"}})
		case transfer.Yield:
			answers = append(answers, transfer.Resume{})
		}
	}
	for _, a := range answers {
		w.step(a)
	}
}

// hear keeps the names that the peer learns: the best lies are nearly true.
func (w *strained) hear(msg transfer.Msg) {
	switch m := msg.(type) {
	case *transfer.MsgTake:
		w.xfers = append(w.xfers, m.Xfer)
	case *transfer.MsgSeek:
		w.xfers = append(w.xfers, m.Xfer)
	case *transfer.MsgFound:
		w.homes, w.items = append(w.homes, m.Home), append(w.items, m.Item)
		if len(m.Key) > 0 {
			w.keys, w.tokens = append(w.keys, m.Key), append(w.tokens, m.Token)
		}
	case *transfer.MsgSeekParked:
		w.homes = append(w.homes, m.Home)
	}
}

func (w *strained) fenced() {
	fences := w.fences
	w.fences = nil
	for _, f := range fences {
		w.step(transfer.Fenced{Leg: f})
	}
}

// calm lets all deadlines pass.
func (w *strained) calm() {
	for range 100 {
		w.fenced()
		w.now += 60 * transfer.Second
		w.step(transfer.Tick{})
	}
	s := w.m.Snapshot()
	if len(s.Sessions)+len(s.Offers)+len(s.Transfers)+len(s.Pipes)+s.Parked > 0 {
		w.t.Fatalf("left: %+v", *s)
	}
	if n := w.m.HeldFor("b"); n != 0 {
		w.t.Fatalf("node b is said to make this one keep %d block ids, and nothing is left", n)
	}
}
