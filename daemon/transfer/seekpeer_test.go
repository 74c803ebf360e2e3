package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAGetThatHeardNothingIsToldAgain: of what was found, and of the grant of the take that it brought, which means nothing without that.
func TestAGetThatHeardNothingIsToldAgain(t *testing.T) {
	a, l := newAsker(t, 0), arena(t, 64)
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: l})
	a.step(transfer.Submit{Session: 1, UserData: 1, Op: send})
	a.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: 256, Blocks: blocksOf(0, 256)}})
	a.asks(layoutMsg(l))
	seek := func() {
		a.asks(&transfer.MsgSeek{
			Xfer: 1, Bind: 1, Name: "p", Match: transfer.MatchNext, Room: 256, Deadline: 60 * transfer.Second,
			Take: &transfer.MsgTake{Engine: "f", Parts: 1, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: blocksOf(0, 256)},
		})
	}
	seek()
	a.begins(1)
	a.plans(1)
	seek()
	if len(a.said) == 2 {
		found, _ := a.said[0].(*transfer.MsgFound)
		grant, _ := a.said[1].(*transfer.MsgGrant)
		if found != nil && found.Taken && grant != nil {
			return
		}
	}
	t.Errorf("b was told %+v, want what was found and its grant", a.said)
}

// TestOnlyAWholeTakeIsBrought: one that does not say into which rank's memory, or into more than one, waits for its MsgTake.
func TestOnlyAWholeTakeIsBrought(t *testing.T) {
	for ranks := range 3 {
		a, l := newAsker(t, 0), arena(t, 64)
		a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
		a.step(transfer.LayoutSet{Session: 1, Layout: l})
		a.step(transfer.Submit{Session: 1, UserData: 1, Op: send})
		a.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: 256, Blocks: blocksOf(0, 256)}})
		a.asks(layoutMsg(l))
		take := &transfer.MsgTake{Engine: "f", Parts: 1, Blocks: blocksOf(0, 256)}
		for rank := range ranks {
			take.Ranks = append(take.Ranks, transfer.RankRef{Rank: uint32(rank), Digest: l.Digest()})
		}
		a.asks(&transfer.MsgSeek{Xfer: 1, Bind: 1, Name: "p", Match: transfer.MatchNext, Room: 256, Deadline: 60 * transfer.Second, Take: take})
		if found, ok := a.said[0].(*transfer.MsgFound); !ok || found.Taken != (ranks == 1) || len(a.begun) > 0 != found.Taken {
			t.Errorf("%d ranks: b was told %+v, and %v were begun", ranks, a.said[0], a.begun)
		}
	}
}
