package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// engineOn is a machine, node a, with an engine of two ranks and their scheduler: sessions 1, 2 and 3. Node b is there as well.
func engineOn(t *testing.T) *transfer.Machine {
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }})
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1, Hints: []string{"b"}})
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		m.Step(1, transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 1000})
		m.Step(1, transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	m.Step(1, transfer.SessionOpened{Session: 3, Engine: "e", Instance: "i", Role: transfer.Scheduler, Credits: 1000})
	return m
}

// losses are the ways in which an operation loses a rank, and what the others then are told of it.
var losses = map[string]struct {
	ev   transfer.Event
	said string
	own  transfer.Reason // for sessions of the engine
	far  transfer.Reason // for others
}{
	"closed": {
		transfer.SessionClosed{Session: 2, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed by its owner"}},
		`key "k": rank 1 of engine "e" on node "a" is gone: closed by its owner; `, transfer.Unavailable, transfer.PeerGone,
	},
	"killed": {
		transfer.SessionClosed{Session: 2, Died: true, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "its process ended"}},
		`key "k": rank 1 of engine "e" on node "a" is gone: its process ended; `, transfer.Unavailable, transfer.PeerGone,
	},
	"replaced": {
		transfer.SessionOpened{Session: 4, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, TPWorld: 2, Credits: 1000},
		`key "k": rank 1 of engine "e" on node "a" is gone: rank 1 of instance "i" of engine "e" has a newer session; `, transfer.Unavailable, transfer.PeerGone,
	},
	"invalidated": {
		transfer.RegionInvalidated{Session: 2, Region: 1},
		`key "k": memory of rank 1 of engine "e" on node "a" was invalidated while the operation used it; `, transfer.Unavailable, transfer.Unavailable,
	},
	"unregistered": {
		transfer.RegionRemoved{Session: 2, Region: 1},
		`key "k": memory of rank 1 of engine "e" on node "a" was unregistered while the operation used it; `, transfer.Unavailable, transfer.PeerGone,
	},
}

// toldOf steps and returns how the operation ended for each session, and what node b was told of a transfer that was aborted.
func toldOf(m *transfer.Machine, ev transfer.Event) (told map[transfer.SessionID]transfer.Cause, aborted *transfer.Cause) {
	told = map[transfer.SessionID]transfer.Cause{}
	effects := append([]transfer.Effect(nil), m.Step(2, ev)...)
	for i := 0; i < len(effects); i++ {
		switch e := effects[i].(type) {
		case transfer.Fence:
			effects = append(effects, m.Step(2, transfer.Fenced{Leg: e.Leg})...)
		case transfer.Complete:
			if e.Status == transfer.Failed {
				told[e.Session] = transfer.Cause{Reason: e.Reason, Text: e.Text}
			}
		case transfer.Send:
			if a, ok := e.Msg.(*transfer.MsgAbort); ok {
				aborted = &a.Cause
			}
		}
	}
	return told, aborted
}

// TestATakeThatLosesARank: its scheduler and the other ranks hear whose loss it was, and do not take it for the end of their own sessions.
func TestATakeThatLosesARank(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			m := engineOn(t)
			m.Step(1, transfer.Submit{Session: 3, UserData: 1, Op: &transfer.TakeOp{
				Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(0, 1),
			}})
			told, _ := toldOf(m, c.ev)
			for _, s := range []transfer.SessionID{1, 3} {
				if want := (transfer.Cause{Reason: c.own, Text: c.said + "take again when it is back"}); told[s] != want {
					t.Errorf("session %d was told %+v, want %+v", s, told[s], want)
				}
			}
		})
	}
}

// TestAnOfferThatLosesARank: as with takes; and who takes it on another node hears whose offer it was.
func TestAnOfferThatLosesARank(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			m := engineOn(t)
			m.Step(1, transfer.Submit{Session: 3, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Lease: transfer.Second, Blocks: someBlocks(0, 1)}})
			l := oneRank(t)
			m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: layoutMsg(l)})
			m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: takeOf(7, l)})
			told, aborted := toldOf(m, c.ev)
			for _, s := range []transfer.SessionID{1, 3} {
				if want := (transfer.Cause{Reason: c.own, Text: c.said + "offer again when it is back"}); told[s] != want {
					t.Errorf("session %d was told %+v, want %+v", s, told[s], want)
				}
			}
			if want := (transfer.Cause{Reason: c.far, Text: c.said + "make a new request"}); aborted == nil || *aborted != want {
				t.Errorf("node b was told %+v, want %+v", aborted, want)
			}
		})
	}
}

// TestWorkersOfferTogether: an offer of two workers ends for both when one of them goes, and the other's session is not over.
func TestWorkersOfferTogether(t *testing.T) {
	m := engineOn(t)
	for s := range transfer.SessionID(2) {
		m.Step(1, transfer.Submit{Session: s + 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Lease: transfer.Second, Blocks: someBlocks(0, 1)}})
	}
	c := losses["closed"]
	told, _ := toldOf(m, c.ev)
	if want := (transfer.Cause{Reason: c.own, Text: c.said + "offer again when it is back"}); told[1] != want {
		t.Errorf("rank 0 was told %+v, want %+v", told[1], want)
	}
}

// TestASchedulerIsLost: its ranks hear that it was the scheduler's session that ended.
func TestASchedulerIsLost(t *testing.T) {
	m := engineOn(t)
	m.Step(1, transfer.Submit{Session: 3, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(0, 1),
	}})
	told, _ := toldOf(m, transfer.SessionClosed{Session: 3, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed by its owner"}})
	want := transfer.Cause{Reason: transfer.Unavailable, Text: `key "k": the scheduler of engine "e" on node "a" is gone: closed by its owner; take again when it is back`}
	if told[1] != want || told[2] != want {
		t.Errorf("its ranks were told %+v, want %+v", told, want)
	}
}

// TestOwnLossesAreToldInOwnWords: who is alone with an operation knows its own regions, and hears of no rank.
func TestOwnLossesAreToldInOwnWords(t *testing.T) {
	m := engineOn(t)
	m.Step(1, transfer.Submit{Session: 2, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(0, 1),
	}})
	told, _ := toldOf(m, transfer.RegionInvalidated{Session: 2, Region: 1})
	if want := (transfer.Cause{Reason: transfer.Unavailable, Text: "region 0x1 was invalidated while the operation used it"}); told[2] != want {
		t.Errorf("it was told %+v, want %+v", told[2], want)
	}
}
