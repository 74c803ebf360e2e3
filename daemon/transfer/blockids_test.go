package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// idsOfSessions is a machine that allows 8 block ids for each of its sessions: 1 and 2 are workers of two engines.
func idsOfSessions(t *testing.T, change func(*transfer.Config)) *ends {
	e := newEnds(t, func(c *transfer.Config) {
		c.MaxBlockIDs, c.OfferWait = 8, 60*transfer.Second
		if change != nil {
			change(c)
		}
	})
	for id, engine := range map[transfer.SessionID]string{1: "e", 2: "f"} {
		e.step(transfer.SessionOpened{Session: id, Engine: engine, Role: transfer.Worker, Credits: 1000})
		e.step(transfer.LayoutSet{Session: id, Layout: oneRank(t)})
	}
	return e
}

// someBlocks are n of them, from one on.
func someBlocks(first uint32, n int) []layout.BlockList {
	l := layout.BlockList{NTokens: uint32(n)}
	for i := range n {
		l.IDs = append(l.IDs, first+uint32(i))
	}
	return []layout.BlockList{l}
}

var anyToken = []byte("0123456789abcdef")

func (e *ends) offer(s transfer.SessionID, key string, first uint32, n int) uint64 {
	return e.submit(s, &transfer.OfferOp{Key: []byte(key), Token: anyToken, Sealed: true, Lease: 5 * transfer.Second, Blocks: someBlocks(first, n)})
}

func (e *ends) take(s transfer.SessionID, key, peer string, first uint32, n int) uint64 {
	return e.submit(s, &transfer.TakeOp{
		Key: []byte(key), Token: anyToken, Peer: peer, TakeID: e.users + 1, LayerSlot: transfer.NoSlot, Timeout: 5 * transfer.Second, Blocks: someBlocks(first, n),
	})
}

// keeps checks how many block ids a session is said to have.
func (e *ends) keeps(s transfer.SessionID, want int) {
	e.tb.Helper()
	for _, x := range e.m.Snapshot().Sessions {
		for _, q := range x.Quotas {
			if x.Session == s && q.Key == "limits.block_ids" && q.Used != want {
				e.tb.Errorf("session %d has %d block ids, want %d", s, q.Used, want)
			}
		}
	}
}

// TestBlockIDsOfASession: those of all its operations together are bounded, and extensions are no way around it. Only who has too many is
// refused, and is told how many, of how many, and what helps. Each list of an extension takes as much as 32 block ids besides its own.
func TestBlockIDsOfASession(t *testing.T) {
	e := idsOfSessions(t, func(c *transfer.Config) { c.MaxBlockIDs = 40 })
	const limit = "the limit is limits.block_ids = 40: wait until some of that has ended, or withdraw offers, or raise that"
	grows := e.submit(1, &transfer.OfferOp{Key: []byte("grows"), Token: anyToken, Lease: 5 * transfer.Second, Blocks: someBlocks(0, 3)})
	extend := func(ids int) uint64 {
		l := someBlocks(0, ids)
		l[0].FirstToken = 3
		for i := range l[0].IDs {
			l[0].IDs[i] = uint32(10 + i)
		}
		return e.submit(1, &transfer.ExtendOp{Target: grows, Blocks: l})
	}
	e.is(extend(6), transfer.Failed, transfer.Quota, "this session has 3 block ids in what it offers, takes, puts and gets, with these 38, "+limit)
	e.isDone(extend(2))
	e.is(e.offer(1, "large", 20, 4), transfer.Failed, transfer.Quota, "has 37 block ids in what it offers, takes, puts and gets, with these 4, "+limit)
	e.is(e.take(1, "large", "", 20, 4), transfer.Failed, transfer.Quota, limit)
	e.keeps(1, 37)
	e.runs(e.take(1, "none", "", 20, 3))
	e.is(e.offer(1, "one", 30, 1), transfer.Failed, transfer.Quota, "has 40 block ids in what it offers, takes, puts and gets, the limit is limits.block_ids = 40")
	e.runs(e.offer(2, "of another", 0, 8))
	e.keeps(2, 8)
	e.isDone(e.submit(1, &transfer.SealOp{Target: grows}))

	e.m.Reload(transfer.Config{MaxBlockIDs: 2})
	e.is(e.offer(1, "one", 30, 1), transfer.Failed, transfer.Quota, "has 40 block ids in what it offers, takes, puts and gets, the limit is limits.block_ids = 2")
	e.isDone(e.submit(1, &transfer.DropOp{Key: []byte("names none"), Token: anyToken}))
	e.m.Reload(transfer.Config{MaxBlockIDs: 41})
	e.runs(e.offer(1, "one", 30, 1))
	e.keeps(1, 41)
}

// TestBlockIDsComeBack: whatever ends an operation, its block ids are counted until it is released, and not after that.
func TestBlockIDsComeBack(t *testing.T) {
	for name, ends := range map[string]func(e *ends){
		"consumed": func(e *ends) {
			offer := e.offer(1, "k", 0, 8)
			e.keeps(1, 8)
			e.isDone(e.take(2, "k", "", 0, 8))
			e.isDone(offer)
		},
		"consumed by a take that came first": func(e *ends) {
			take := e.take(2, "k", "", 0, 8)
			e.keeps(2, 8)
			e.isDone(e.offer(1, "k", 0, 8))
			e.isDone(take)
		},
		"withdrawn, with its extension": func(e *ends) {
			e.m.Reload(transfer.Config{MaxBlockIDs: 40})
			offer := e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: someBlocks(0, 4)})
			more := someBlocks(4, 4)
			more[0].FirstToken = 4
			e.isDone(e.submit(1, &transfer.ExtendOp{Target: offer, Blocks: more, Sealed: true}))
			e.keeps(1, 40)
			e.isDone(e.submit(1, &transfer.WithdrawOp{Target: offer}))
		},
		"expired, and a take that came too early": func(e *ends) {
			e.offer(1, "k", 0, 8)
			take := e.take(2, "other", "", 0, 8)
			e.pass(5 * transfer.Second)
			e.is(take, transfer.Failed, transfer.Timeout, "")
		},
		"cancelled": func(e *ends) {
			take := e.take(2, "k", "", 0, 8)
			e.isDone(e.submit(2, &transfer.CancelOp{Target: take}))
		},
		"failed on its way": func(e *ends) {
			e.fail = true
			offer := e.offer(1, "k", 0, 8)
			e.is(e.take(2, "k", "", 0, 8), transfer.Failed, transfer.Invalid, "the copy failed")
			e.isDone(e.submit(1, &transfer.WithdrawOp{Target: offer}))
		},
		"refused for another reason": func(e *ends) {
			e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: someBlocks(100, 8)})
			e.take(2, "k", "", 0, 2)
			e.is(e.take(2, "l", "", 0, 6), transfer.Failed, transfer.Busy, "")
			e.pass(5 * transfer.Second)
		},
		"failed with the daemon before": func(e *ends) {
			e.submit(2, &transfer.TakeOp{Key: []byte("k"), Token: anyToken, TakeID: 1, Restarted: true, Blocks: someBlocks(0, 8)})
		},
		"without its memory": func(e *ends) {
			e.offer(1, "k", 0, 8)
			e.take(2, "other", "", 0, 8)
			for s := transfer.SessionID(1); s <= 2; s++ {
				e.step(transfer.RegionInvalidated{Session: s, Region: 1})
				e.step(transfer.RegionRevalidated{Session: s, Region: 1})
			}
		},
		"without the peer": func(e *ends) {
			take := e.take(2, "k", "b", 0, 8)
			e.step(transfer.DialFailed{Hint: "b", Final: true})
			e.ended(take)
		},
		"and its producer has not heard of it": func(e *ends) {
			e.step(transfer.PeerUp{Node: "b", Epoch: 1})
			take := e.take(2, "k", "b", 0, 8)
			e.isDone(e.submit(2, &transfer.CancelOp{Target: take}))
			if n := len(e.m.Snapshot().Transfers); n != 1 {
				e.tb.Errorf("%d transfers are remembered, want the one that the peer has to hear of", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := idsOfSessions(t, nil)
			ends(e)
			e.keeps(1, 0)
			e.keeps(2, 0)
			e.runs(e.offer(1, "again", 0, 8), e.take(2, "none", "", 0, 8))
		})
	}
}

// TestBlockIDsOfADeadSession: a session that is gone for good leaves none, also when what it had offered outlived it.
func TestBlockIDsOfADeadSession(t *testing.T) {
	e := idsOfSessions(t, func(c *transfer.Config) { c.OrphanLease = 3 * transfer.Second })
	e.offer(1, "k", 0, 8)
	e.take(2, "other", "", 0, 8)
	for s := transfer.SessionID(1); s <= 2; s++ {
		e.step(transfer.SessionClosed{Session: s, Died: true})
	}
	e.keeps(1, 8)
	e.pass(3 * transfer.Second)
	if s := e.m.Snapshot(); len(s.Sessions) > 0 {
		t.Errorf("left: %+v", s.Sessions)
	}
}

// TestBlockIDsWaitForTheFence: an operation that was reported and not released still keeps its block ids, as the plan of its bytes does.
func TestBlockIDsWaitForTheFence(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxBlockIDs: 8})
	for s := transfer.SessionID(1); s <= 2; s++ {
		m.Step(1, transfer.SessionOpened{Session: s, Engine: "e", Role: transfer.Worker, Rank: uint32(s - 1), TPWorld: 2, Credits: 1000})
		m.Step(1, transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	e := &ends{tb: t, m: m, now: 1}
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
	var take *transfer.MsgTake
	for _, eff := range m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, Peer: "b", Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(0, 8),
	}}) {
		if s, ok := eff.(transfer.Send); ok {
			if msg, ok := s.Msg.(*transfer.MsgTake); ok {
				take = msg
			}
		}
	}
	l := oneRank(t)
	m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgLayout{Layout: l}})
	m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGrant{
		Xfer: take.Xfer, Incarnation: 1, Last: true, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: someBlocks(0, 8), Transport: "tcp", Slices: 1, Bytes: 8,
	}})
	var fence transfer.Leg
	for at := transfer.Time(1); at < 2*transfer.Second; at += 100 * transfer.Millisecond {
		for _, eff := range m.Step(at, transfer.Tick{}) {
			switch eff := eff.(type) {
			case transfer.Fence:
				fence = eff.Leg
			case transfer.Complete:
				if !eff.More {
					t.Errorf("released before the fence: %+v", eff)
				}
			}
		}
	}
	e.keeps(1, 8)
	m.Step(2*transfer.Second, transfer.Fenced{Leg: fence})
	e.keeps(1, 0)
}

// TestBlockIDsOfEnds: what is put and what gets wait with counts like all else; a pipe whose item is refused for it ends there.
func TestBlockIDsOfEnds(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxBlockIDs = 8 })
	tx, rx := e.open(1, send), e.open(2, recv)
	put := e.put(1, tx, 0, 5*block, "")
	e.keeps(1, 5)
	withdrawn := e.put(1, tx, 5, 3*block, "")
	e.keeps(1, 8)
	e.isDone(e.get(2, rx, 0, 0, 8*block))
	e.isDone(put)
	e.isDone(e.submit(1, &transfer.CancelOp{Target: withdrawn}))
	e.keeps(1, 0)
	get := e.get(2, rx, 2, 0, 8*block)
	e.keeps(2, 8)
	e.is(e.get(2, rx, 3, 8, block), transfer.Failed, transfer.Quota, "limits.block_ids = 8")
	e.pass(2 * transfer.Second)
	e.is(get, transfer.Failed, transfer.Timeout, "")
	e.keeps(2, 0)
	e.is(e.put(1, tx, 0, 9*block, ""), transfer.Failed, transfer.Quota, "has 0 block ids in what it offers, takes, puts and gets, with these 9, the limit is limits.block_ids = 8")
	e.is(e.put(1, tx, 0, block, ""), transfer.Failed, transfer.Quota, "limits.block_ids = 8")
	e.keeps(1, 0)
}

// TestBlocksOfManyRanks: everybody waits while an operation is accepted, and that takes as long at each rank of a scheduler. So no operation holds
// more blocks, at all of its ranks, than one of the most block ids at eight.
func TestBlocksOfManyRanks(t *testing.T) {
	const ranks, most = 16, 8 << 20
	e := newEnds(t, nil)
	for r := range uint32(ranks) {
		id := transfer.SessionID(r + 2)
		e.step(transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: r, TPWorld: ranks, PPWorld: 1, Credits: 1000})
		e.step(transfer.LayoutSet{Session: id, Layout: arena(t, layout.MaxIDs)})
	}
	e.step(transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, TPWorld: ranks, PPWorld: 1, Credits: 1000})
	blocks := func(first, n uint32) []layout.BlockList {
		return []layout.BlockList{{FirstToken: first * block, NTokens: n * block, IDs: layout.Adjacent(first, n)}}
	}
	offer := func(s transfer.SessionID, key string, n uint32) uint64 {
		return e.submit(s, &transfer.OfferOp{Key: []byte(key), Token: anyToken, Lease: 5 * transfer.Second, Blocks: blocks(0, n)})
	}
	take := func(n uint32) uint64 {
		return e.submit(1, &transfer.TakeOp{Key: []byte("none"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: 5 * transfer.Second, Blocks: blocks(0, n)})
	}
	const too = uint32(most/ranks + 1)
	says := fmt.Sprintf("blocks: %d ids, each of a block at 16 ranks, are %d blocks, the limit of one operation is 8388608: split it, or have the ranks offer and take for themselves", too, too*ranks)
	e.is(take(too), transfer.Failed, transfer.Quota, says)
	e.is(offer(1, "o", too), transfer.Failed, transfer.Quota, says)
	grows := offer(1, "o", 1)
	extend := func(n uint32) uint64 { return e.submit(1, &transfer.ExtendOp{Target: grows, Blocks: blocks(1, n)}) }
	e.is(extend(too), transfer.Failed, transfer.Quota, says)
	e.isDone(extend(too - 1))
	e.runs(offer(2, "of one rank", layout.MaxIDs))
}
