package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestRefusals: what a client asks for at the wrong time, or without the right to it, changes nothing and is told why.
func TestRefusals(t *testing.T) {
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }})
	l := oneRank(t)
	for id, s := range map[transfer.SessionID]transfer.SessionOpened{
		1: {Engine: "p", Rank: 0, TPWorld: 2}, 2: {Engine: "p", Rank: 1, TPWorld: 2}, 3: {Engine: "d"},
	} {
		s.Session, s.Instance, s.Role, s.Credits = id, "i", transfer.Worker, 1000
		m.Step(1, s)
		m.Step(1, transfer.LayoutSet{Session: id, Layout: l})
	}
	user := uint64(0)
	// submit returns how the operation ended at once; nil: it goes on.
	submit := func(s transfer.SessionID, op transfer.Op) (end *transfer.Complete) {
		user++
		for _, e := range m.Step(1, transfer.Submit{Session: s, UserData: user, Op: op}) {
			if c, ok := e.(transfer.Complete); ok && c.Session == s && c.UserData == user {
				end = &c
			}
		}
		return end
	}
	refused := func(s transfer.SessionID, op transfer.Op, reason transfer.Reason, text string) {
		t.Helper()
		if c := submit(s, op); c == nil || c.Status != transfer.Failed || c.Reason != reason || !strings.Contains(c.Text, text) {
			t.Errorf("%T: %+v, want reason %d with %q", op, c, reason, text)
		}
	}
	goesOn := func(s transfer.SessionID, op transfer.Op) uint64 {
		t.Helper()
		if c := submit(s, op); c != nil {
			t.Fatalf("%T ended at once: %+v", op, c)
		}
		return user
	}
	done := func(s transfer.SessionID, op transfer.Op) {
		t.Helper()
		if c := submit(s, op); c == nil || c.Status != transfer.Done {
			t.Fatalf("%T: %+v", op, c)
		}
	}
	token, wrong := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	block := func(id, first uint32) []layout.BlockList {
		return []layout.BlockList{{FirstToken: first, NTokens: 1, IDs: []uint32{id}}}
	}
	offer := func(key string, token []byte, id uint32) *transfer.OfferOp {
		return &transfer.OfferOp{Key: []byte(key), Token: token, Blocks: block(id, 0)}
	}
	take := func(key string, token []byte, id uint32) *transfer.TakeOp {
		return &transfer.TakeOp{Key: []byte(key), Token: token, TakeID: uint64(id), LayerSlot: transfer.NoSlot, Blocks: block(id, 0)}
	}

	first := goesOn(1, offer("k", token, 1))
	refused(2, offer("k", wrong, 1), transfer.Denied, "the token differs")
	other := offer("k", token, 1)
	other.Content = []byte("another adapter")
	refused(2, other, transfer.Incompatible, "the content digest is")
	refused(1, offer("k", token, 8), transfer.Busy, "rank 0 has an offer under it already")
	refused(3, offer("k", token, 1), transfer.Busy, `in use by an offer of engine "p"`)
	refused(1, &transfer.ExtendOp{Target: first, Blocks: block(2, 5)}, transfer.Invalid, "begins at token 5")
	done(1, &transfer.ExtendOp{Target: first, Blocks: block(2, 1), Sealed: true})
	refused(1, &transfer.ExtendOp{Target: first, Blocks: block(3, 2)}, transfer.Invalid, "sealed")
	refused(3, &transfer.ExtendOp{Target: first, Blocks: block(3, 2)}, transfer.NotFound, "no offer of this session")

	refused(3, &transfer.WatchOp{Key: []byte("k"), Token: wrong}, transfer.Denied, "wrong token")
	refused(3, &transfer.DropOp{Key: []byte("k"), Token: wrong}, transfer.Denied, "wrong token")
	if offers := m.Snapshot().Offers; len(offers) != 1 || offers[0].Key != "k" {
		t.Errorf("after what was refused: %+v", offers)
	}

	m.Step(1, transfer.SessionOpened{Session: 4, Engine: "alone", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 100})
	refused(4, take("later", token, 7), transfer.Unavailable, `engine "alone" has no worker on node "a"`)
	goesOn(3, take("later", token, 7))
	refused(3, &transfer.ExtendOp{Target: user, Blocks: block(3, 2)}, transfer.Invalid, "is not an offer")
	elsewhere := take("later", token, 8)
	elsewhere.TakeID, elsewhere.Blocks[0].Group = 7, 5
	refused(3, elsewhere, transfer.Invalid, "list 0 is of group 5, which no rank's layout has")
	again := take("later", token, 8)
	again.TakeID = 7
	refused(3, again, transfer.Busy, "runs already")
	for _, p := range []struct{ part, parts int }{{1, 1}, {-1, 1}, {0, 257}} {
		apart := take("later", token, 9)
		apart.Part, apart.Parts = p.part, p.parts
		refused(3, apart, transfer.Invalid, "parts must be 1 to 256")
	}

	goesOn(1, offer("gone", token, 5))
	done(1, &transfer.WithdrawOp{Target: user})
	refused(3, take("gone", token, 9), transfer.Expired, "withdrawn")
	goesOn(3, take("gone", wrong, 10)) // who has no token learns nothing of the key's past
}

// TestAWatchHearsOfTheOffer: of one that comes later as well, and of what was there.
func TestAWatchHearsOfTheOffer(t *testing.T) {
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }})
	for id, engine := range map[transfer.SessionID]string{1: "p", 3: "d"} {
		m.Step(1, transfer.SessionOpened{Session: id, Engine: engine, Instance: "i", Role: transfer.Worker, Credits: 1000})
		m.Step(1, transfer.LayoutSet{Session: id, Layout: oneRank(t)})
	}
	token, user := []byte("0123456789abcdef"), uint64(0)
	// submit returns how watches ended in this step: their numbers and reasons.
	submit := func(s transfer.SessionID, op transfer.Op) map[uint64]transfer.Reason {
		user++
		ends := map[uint64]transfer.Reason{}
		for _, e := range m.Step(1, transfer.Submit{Session: s, UserData: user, Op: op}) {
			if c, ok := e.(transfer.Complete); ok && c.Kind == transfer.KindWatch {
				ends[c.UserData] = c.Reason
			}
		}
		return ends
	}
	watch := func(token string) *transfer.WatchOp { return &transfer.WatchOp{Key: []byte("k"), Token: []byte(token)} }
	for _, w := range []*transfer.WatchOp{watch("0123456789abcdef"), watch("fedcba9876543210")} {
		if ends := submit(3, w); len(ends) != 0 {
			t.Fatalf("nothing is offered, and a watch ended: %v", ends)
		}
	}
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}
	ends := submit(1, &transfer.OfferOp{Key: []byte("k"), Token: token, Blocks: blocks, Sealed: true})
	if len(ends) != 2 || ends[1] != transfer.OK || ends[2] != transfer.Denied {
		t.Errorf("the offer came: %v", ends)
	}
	if ends := submit(3, watch("0123456789abcdef")); len(ends) != 1 || ends[4] != transfer.OK {
		t.Errorf("the offer is there: %v", ends)
	}
	submit(1, &transfer.WithdrawOp{Target: 3})
	if ends := submit(3, watch("0123456789abcdef")); len(ends) != 1 || ends[6] != transfer.Expired {
		t.Errorf("the offer is gone: %v", ends)
	}
}

// TestAbortOfATakeThatWasNotHeardOf: MsgFound and MsgGrant are lost, and the home's end of the take that they began is over: the GET ends at
// once, and says so, as the home waits for that word before anybody else has the item.
func TestAbortOfATakeThatWasNotHeardOf(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1, Hints: []string{"b"}})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: arena(t, 4)})
	m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
	var xfer transfer.XferID
	for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: 2, Op: &transfer.GetOp{
		Target: 1, Match: transfer.MatchNext, Room: 10, Timeout: 60 * transfer.Second, Blocks: blocksOf(0, 10),
	}}) {
		if s, ok := e.(transfer.Send); ok {
			if seek, ok := s.Msg.(*transfer.MsgSeek); ok {
				xfer = seek.Xfer
			}
		}
	}
	gone := transfer.Cause{Reason: transfer.PeerGone, Text: "its sender died"}
	var ended, said bool
	for _, e := range m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgAbort{Xfer: xfer, Cause: gone}}) {
		switch e := e.(type) {
		case transfer.Complete:
			ended = e.UserData == 2 && e.Status == transfer.Failed && e.Reason == transfer.PeerGone
		case transfer.Send:
			end, is := e.Msg.(*transfer.MsgEnd)
			said = said || is && end.Xfer == xfer && end.Status == transfer.Failed
		}
	}
	if xfer == 0 || !ended || !said {
		t.Errorf("transfer %d: ended: %v, and its home was told: %v", xfer, ended, said)
	}
}

// TestARankThatComesLateIsNotInTheOffer: it was complete with those that the engine had, and may have been taken.
func TestARankThatComesLateIsNotInTheOffer(t *testing.T) {
	e := newEnds(t, nil)
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		e.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 100})
		e.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)})
		op := e.offer(s, "k", 0, 1)
		if rank == 0 {
			e.runs(op)
		} else {
			e.is(op, transfer.Failed, transfer.Busy, `all ranks that engine "e" had were in the offer before rank 1 came`)
		}
	}
}

// TestRanksSealAlike: an offer whose ranks made different numbers of pieces is none, and each of them hears of it.
func TestRanksSealAlike(t *testing.T) {
	e := newEnds(t, nil)
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		e.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 100})
		e.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	longer := e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: someBlocks(0, 1)})
	e.isDone(e.submit(1, &transfer.ExtendOp{Target: longer, Sealed: true, Blocks: []layout.BlockList{{FirstToken: 1, NTokens: 1, IDs: []uint32{1}}}}))
	e.runs(longer)
	shorter := e.offer(2, "k", 0, 1)
	for _, op := range []uint64{longer, shorter} {
		e.is(op, transfer.Failed, transfer.Invalid, "its ranks sealed it after different numbers of extensions")
	}
}
