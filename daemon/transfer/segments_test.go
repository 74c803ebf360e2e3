package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestSegmentsAreBounded: an offer is extended up to a limit, also by nothing, and what it has then is sealed and taken as ever.
func TestSegmentsAreBounded(t *testing.T) {
	const limit = 4096
	l, token := oneRank(t), []byte("0123456789abcdef")
	e := newEnds(t, func(c *transfer.Config) { c.AtOnce = 0 })
	for s, name := range map[transfer.SessionID]string{1: "p", 2: "d"} {
		e.step(transfer.SessionOpened{Session: s, Engine: name, Owner: "o", Role: transfer.Worker, Credits: 2 * limit})
		e.step(transfer.LayoutSet{Session: s, Layout: l})
	}
	offer := e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: token, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}})
	nothing := func() *transfer.ExtendOp {
		return &transfer.ExtendOp{Target: offer, Blocks: []layout.BlockList{{FirstToken: 1}}}
	}
	for range limit - 1 {
		e.isDone(e.submit(1, nothing()))
	}
	e.is(e.submit(1, nothing()), transfer.Failed, transfer.Quota, `key "k" was made and extended in 4096 pieces, the limit is 4096: extend it by more blocks at once`)
	e.isDone(e.submit(1, &transfer.ExtendOp{Target: offer, Sealed: true}))
	e.isDone(e.submit(2, &transfer.TakeOp{
		Key: []byte("k"), Token: token, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{2}}},
	}))
	e.isDone(offer)
}

// TestOneTransportForAllSegments: whatever the plan of a later one says. The fence that ends a take is of one.
func TestOneTransportForAllSegments(t *testing.T) {
	a := newAsker(t, 0)
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	a.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: someBlocks(0, 1)}})
	l := oneRank(t)
	a.asks(layoutMsg(l))
	in := takeOf(1, l)
	in.Blocks = someBlocks(0, 2)
	a.asks(in)
	leg := a.plans(1)
	a.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.ExtendOp{Target: 50, Sealed: true, Blocks: []layout.BlockList{{FirstToken: 1, NTokens: 1, IDs: []uint32{1}}}}})
	a.step(transfer.Planned{Leg: leg, Seg: 1, Slices: 1, Bytes: 4096, Transport: "shm"})
	granted := 0
	for _, msg := range a.said {
		if g, ok := msg.(*transfer.MsgGrant); ok {
			granted++
			if g.Seg != 1 || g.Transport != "tcp" {
				t.Errorf("segment %d goes by %s, after one that goes by tcp", g.Seg, g.Transport)
			}
		}
	}
	if granted != 1 {
		t.Errorf("%d segments were granted, want the second", granted)
	}
}
