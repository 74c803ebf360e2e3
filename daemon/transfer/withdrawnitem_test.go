package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// finder is node b, a get of which has found an item that its sender has withdrawn since.
type finder struct {
	*asker
	found *transfer.MsgFound
}

const foundBy = transfer.XferID(7)

func (f *finder) seek() *transfer.MsgSeek {
	return &transfer.MsgSeek{Xfer: foundBy, Bind: 1, Name: "p", Match: transfer.MatchNext, Room: 256, Deadline: 3600 * transfer.Second}
}

func newFinder(t *testing.T) *finder {
	f := &finder{asker: newAsker(t, 0)}
	f.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	f.step(transfer.LayoutSet{Session: 1, Layout: arena(t, 64)})
	f.step(transfer.Submit{Session: 1, UserData: 1, Op: send})
	f.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: 256, Blocks: blocksOf(0, 256)}})
	f.asks(f.seek())
	if len(f.said) == 1 {
		f.found, _ = f.said[0].(*transfer.MsgFound)
	}
	if f.found == nil || f.found.Taken {
		t.Fatalf("b was told %+v, want what was found", f.said)
	}
	f.step(transfer.Submit{Session: 1, UserData: 3, Op: &transfer.CancelOp{Target: 2}})
	if f.m.Items() != 0 {
		t.Fatal("the item was not withdrawn")
	}
	return f
}

// expired checks that b was told, as the last word, that there is nothing for its get any more.
func (f *finder) expired(what string) {
	f.tb.Helper()
	if len(f.said) == 1 {
		switch r := f.said[0].(type) {
		case *transfer.MsgSeekRefuse:
			if r.Retry == 0 && r.Cause.Reason == transfer.Expired {
				return
			}
		case *transfer.MsgRefuse:
			if r.Retry == 0 && r.Cause.Reason == transfer.Expired {
				return
			}
		}
	}
	f.tb.Errorf("%s: b was told %+v", what, f.said)
}

// over checks that the get is no more than remembered, and that a late copy of its MsgSeek does not begin it again.
func (f *finder) over() {
	f.tb.Helper()
	for range 2 {
		if u := f.m.PeerUses(); len(u) != 1 || u[0] != (transfer.PeerUse{Node: "b", Ends: 1}) {
			f.tb.Errorf("b uses %+v, want its end alone", u)
		}
		f.asks(f.seek())
		f.expired("a late MsgSeek")
	}
}

// TestAGetWhoseItemIsWithdrawnIsOver: with the take that was to come for it, whose refusal is the last that is heard of it.
func TestAGetWhoseItemIsWithdrawnIsOver(t *testing.T) {
	f, l := newFinder(t), arena(t, 64)
	f.asks(layoutMsg(l))
	f.asks(&transfer.MsgTake{
		Xfer: foundBy, Engine: "f", Parts: 1, Key: f.found.Key, Token: f.found.Token, Deadline: 3600 * transfer.Second,
		Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: blocksOf(0, 256),
	})
	f.expired("the take")
	f.over()
}

// TestAGetHearsThatItsItemWasWithdrawn: also if it never heard that there was one, and asks again.
func TestAGetHearsThatItsItemWasWithdrawn(t *testing.T) {
	f := newFinder(t)
	f.asks(f.seek())
	f.expired("asked again")
	f.over()
}
