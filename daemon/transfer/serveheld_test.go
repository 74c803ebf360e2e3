package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// piecemeal is a machine that allows 5000 block ids for each session. Worker 1 offers "k" in pieces, of which the first alone has a block;
// worker 2, of another engine, takes it and is not ready for the bytes.
type piecemeal struct {
	*ends
	offer uint64
}

func newPiecemeal(t *testing.T, pieces int) *piecemeal {
	p := &piecemeal{ends: idsOfSessions(t, func(c *transfer.Config) { c.MaxBlockIDs = 5000 })}
	p.offer = p.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Consumers: 1000, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 1)})
	for range pieces - 1 {
		p.isDone(p.extends())
	}
	return p
}

func (p *piecemeal) extends() uint64 {
	return p.submit(1, &transfer.ExtendOp{Target: p.offer, Blocks: []layout.BlockList{{FirstToken: 1}}})
}

func (p *piecemeal) takes(block uint32) uint64 {
	return p.submit(2, &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, TakeID: p.users + 1, LayerSlot: transfer.NoSlot, After: 1 << 16, Timeout: 5 * transfer.Second, Blocks: someBlocks(block, 1),
	})
}

// TestSegmentsOfTakesWithinTheNodeCount: a take of one block keeps as many segments as the offer has pieces. All but the first count for the
// session that takes, until the take is released, and one for which there is no room does not begin.
func TestSegmentsOfTakesWithinTheNodeCount(t *testing.T) {
	p := newPiecemeal(t, 10)
	take := p.takes(0)
	p.runs(take)
	p.keeps(2, 1+9*384)
	p.is(p.takes(1), transfer.Failed, transfer.Quota, `key "k": its offer was made and extended in many pieces, each of which counts: this session has 3458 block ids `)
	p.keeps(2, 1+9*384)
	p.isDone(p.submit(2, &transfer.CancelOp{Target: take}))
	p.keeps(2, 0)
	p.runs(p.takes(1))
}

// TestATakeWithinTheNodeOfAnOfferThatGrowsTooMuch ends with the segment for which there is no room.
func TestATakeWithinTheNodeOfAnOfferThatGrowsTooMuch(t *testing.T) {
	p := newPiecemeal(t, 1)
	take := p.takes(0)
	for range 13 {
		p.isDone(p.extends())
	}
	p.runs(take)
	p.isDone(p.extends())
	p.is(take, transfer.Failed, transfer.Quota, "the limit is limits.block_ids = 5000")
	p.keeps(2, 0)
}

// TestPlansOfSegmentsWithinTheNodeCount, with what they take: few block ids are enough for many views.
func TestPlansOfSegmentsWithinTheNodeCount(t *testing.T) {
	p := newPiecemeal(t, 2)
	p.planSize = 4 * 1000
	take := p.takes(0)
	p.runs(take)
	p.keeps(2, 1+384+1000)
	p.planSize = 4 * 5000
	p.isDone(p.extends())
	p.is(take, transfer.Failed, transfer.Quota, "the limit is limits.block_ids = 5000")
}

// TestPiecesOfOffersCount: by which an offer is extended without a single block.
func TestPiecesOfOffersCount(t *testing.T) {
	p := newPiecemeal(t, 1+4999/32)
	p.is(p.extends(), transfer.Failed, transfer.Quota, "with these 32, the limit is limits.block_ids = 5000")
	p.isDone(p.submit(1, &transfer.WithdrawOp{Target: p.offer}))
	p.keeps(1, 0)
}
