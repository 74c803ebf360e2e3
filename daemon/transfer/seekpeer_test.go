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

// TestOnlyAWholeTakeIsBrought: one that does not say into which rank's memory, or not into enough of it, waits for its MsgTake, which is refused.
func TestOnlyAWholeTakeIsBrought(t *testing.T) {
	l := arena(t, 64)
	for what, c := range map[string]struct {
		change func(*transfer.MsgTake)
		whole  bool
	}{
		"all of it":      {func(*transfer.MsgTake) {}, true},
		"no rank":        {func(b *transfer.MsgTake) { b.Ranks = nil }, false},
		"two ranks":      {func(b *transfer.MsgTake) { b.Ranks = append(b.Ranks, transfer.RankRef{Rank: 1, Digest: l.Digest()}) }, false},
		"unknown memory": {func(b *transfer.MsgTake) { b.Ranks[0].Digest[0]++ }, false},
		"no blocks":      {func(b *transfer.MsgTake) { b.Blocks = nil }, false},
		"two lists":      {func(b *transfer.MsgTake) { b.Blocks = append(b.Blocks, b.Blocks...) }, false},
		"too few blocks": {func(b *transfer.MsgTake) { b.Blocks[0].IDs = b.Blocks[0].IDs[:1] }, false},
		"a later token":  {func(b *transfer.MsgTake) { b.Blocks[0].FirstToken = 1 }, false},
		"no such group":  {func(b *transfer.MsgTake) { b.Blocks[0].Group = 9 }, false},
	} {
		a := newAsker(t, 0)
		a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
		a.step(transfer.LayoutSet{Session: 1, Layout: l})
		a.step(transfer.Submit{Session: 1, UserData: 1, Op: send})
		a.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: 512, Blocks: blocksOf(0, 512)}})
		a.asks(layoutMsg(l))
		take := &transfer.MsgTake{Engine: "f", Parts: 1, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: blocksOf(0, 512)}
		c.change(take)
		a.asks(&transfer.MsgSeek{Xfer: 1, Bind: 1, Name: "p", Match: transfer.MatchNext, Room: 512, Deadline: 60 * transfer.Second, Take: take})
		if found, ok := a.said[0].(*transfer.MsgFound); !ok || found.Taken != c.whole || len(a.begun) > 0 != c.whole {
			t.Errorf("%s: b was told %+v, and %v were begun", what, a.said[0], a.begun)
		}
	}
}

// seeksFor has b look in the pipe of a sender that is here, for so long and with so much else, and returns what it is told.
func seeksFor(t *testing.T, change func(*transfer.MsgSeek)) (*asker, []transfer.Msg) {
	a := newAsker(t, 0)
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: arena(t, 64)})
	a.step(transfer.Submit{Session: 1, UserData: 1, Op: send})
	msg := &transfer.MsgSeek{Xfer: 1, Bind: 1, Name: "p", Match: transfer.MatchNext, Room: 256, Deadline: 60 * transfer.Second}
	change(msg)
	a.asks(msg)
	return a, a.said
}

// TestTimesOfAPeerAreCut: what it says is as long as its clock's hours may be, and no sum of it ends before it began.
func TestTimesOfAPeerAreCut(t *testing.T) {
	const ever = transfer.Time(1<<63 - 1)
	a, _ := seeksFor(t, func(msg *transfer.MsgSeek) { msg.Deadline = ever })
	for range 10 {
		a.later(60 * transfer.Second)
		if len(a.said) > 0 {
			t.Fatalf("a get that has all the time is told %+v", a.said[0])
		}
	}
	a, _ = seeksFor(t, func(msg *transfer.MsgSeek) { msg.Room, msg.Keep = 1, ever })
	a.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: 256, Blocks: blocksOf(0, 256)}})
	for range 10 {
		a.later(60 * transfer.Second)
		if u := a.m.PeerUses(); len(u) != 1 || u[0].Gets != 1 {
			t.Fatalf("what is kept for all the time is not kept: %+v", u)
		}
	}
}

// TestASeekThatMeansNothingIsRefused: whatever it looks for comes with what that needs, and with nothing else.
func TestASeekThatMeansNothingIsRefused(t *testing.T) {
	for what, change := range map[string]func(*transfer.MsgSeek){
		"tokens of a pipe":  func(msg *transfer.MsgSeek) { msg.Tokens = []uint32{1} },
		"no tokens to find": func(msg *transfer.MsgSeek) { msg.Buffer, msg.Match = true, transfer.MatchExact },
		"tokens of a key":   func(msg *transfer.MsgSeek) { msg.Buffer, msg.Match, msg.Tokens = true, transfer.MatchKey, []uint32{1} },
		"next of a buffer":  func(msg *transfer.MsgSeek) { msg.Buffer = true },
		"any of a pipe":     func(msg *transfer.MsgSeek) { msg.Match = transfer.MatchAny },
		"no name":           func(msg *transfer.MsgSeek) { msg.Name = "" },
		"no match":          func(msg *transfer.MsgSeek) { msg.Buffer, msg.Match = true, 0 },
	} {
		_, said := seeksFor(t, change)
		refused := false
		for _, msg := range said {
			r, is := msg.(*transfer.MsgSeekRefuse)
			refused = refused || is && r.Cause.Reason == transfer.Invalid && r.Retry == 0
		}
		if !refused {
			t.Errorf("%s: b was told %+v", what, said)
		}
	}
}

// TestAnEndStaysWithItsHome: what it has met first, whatever is said of another one meanwhile.
func TestAnEndStaysWithItsHome(t *testing.T) {
	a := newAsking(t, transfer.Endpoint)
	a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
	seeks := func(user uint64) (home, base, seq uint64) {
		for _, e := range a.m.Step(2, transfer.Submit{Session: 1, UserData: user, Op: &transfer.GetOp{Target: 1, Match: transfer.MatchNext, Seq: user, Timeout: transfer.Second}}) {
			if s, ok := e.(transfer.Send); ok {
				if msg, ok := s.Msg.(*transfer.MsgSeek); ok {
					a.xfer, home, base, seq = msg.Xfer, msg.Home, msg.Base, msg.Seq
				}
			}
		}
		return home, base, seq
	}
	if home, base, seq := seeks(2); home != 0 || base != 0 || seq != 2 {
		t.Errorf("it looks for item %d in home %d from %d on before it has met any", seq, home, base)
	}
	a.hears(&transfer.MsgSeekParked{Xfer: a.xfer, Home: 5, Base: 100})
	a.hears(&transfer.MsgSeekParked{Xfer: a.xfer, Home: 6, Base: 200})
	if home, base, seq := seeks(3); home != 5 || base != 100 || seq != 103 {
		t.Errorf("it looks for item %d in home %d from %d on, want 103 in 5 from 100 on", seq, home, base)
	}
}
