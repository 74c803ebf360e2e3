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
