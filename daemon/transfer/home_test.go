package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestNobodyQueuesInAHomeThatEnds: the end of a pipe's items ends the transfer that kept its place for a receiver that is closed, and the
// next receiver is looked at while its home is ending: it waits for the next sender, and gets what that one sends.
func TestNobodyQueuesInAHomeThatEnds(t *testing.T) {
	e := newEnds(t, nil)
	tx := e.open(1, send)
	e.put(1, tx, 0, 1000, "")
	e.step(transfer.PeerUp{Node: "b", Epoch: 1})
	tell := func(ev transfer.Event) (found *transfer.MsgFound, refused *transfer.MsgSeekRefuse) {
		for _, eff := range e.m.Step(e.now, ev) {
			s, _ := eff.(transfer.Send)
			switch msg := s.Msg.(type) {
			case *transfer.MsgFound:
				found = msg
			case *transfer.MsgSeekRefuse:
				refused = msg
			}
		}
		return found, refused
	}
	hear := func(msg transfer.Msg) (*transfer.MsgFound, *transfer.MsgSeekRefuse) {
		return tell(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg})
	}
	seek := func(x transfer.XferID, bind uint64) *transfer.MsgSeek {
		return &transfer.MsgSeek{Xfer: x, Bind: bind, Name: "p", Match: transfer.MatchNext, Room: 4096, Keep: 1e9, Deadline: 60e9}
	}
	found, _ := hear(seek(1, 5))
	if found == nil {
		t.Fatal("the first receiver found nothing")
	}
	hear(&transfer.MsgTake{ // waits for a layout that does not come
		Xfer: 1, Engine: "f", TakeID: 1, Parts: 1, Key: found.Key, Token: found.Token, Ranks: []transfer.RankRef{{Digest: [32]byte{1}}}, Blocks: blocksOf(0, 1000), Deadline: 60e9,
	})
	hear(&transfer.MsgUnbind{Bind: 5, Name: "p"})
	hear(seek(2, 6))
	if _, refused := tell(transfer.Submit{Session: 1, UserData: 100, Op: &transfer.CancelOp{Target: tx}}); refused != nil {
		t.Errorf("the second receiver, which had met no sender, is refused: %+v", refused.Cause)
	}
	e.open(2, send)
	if found, _ := tell(transfer.Submit{Session: 2, UserData: 101, Op: &transfer.PutOp{
		Target: e.users, Form: transfer.MatchNext, Bytes: 1000, Blocks: blocksOf(0, 1000),
	}}); found == nil || found.Xfer != 2 {
		t.Errorf("the next sender's item went to %+v, want transfer 2", found)
	}
	e.pass(200 * transfer.Second) // all deadlines
}

// TestAnEndHearsOfItsOwnSender: how the sender ended that it had met, whatever becomes of the next ones of that name.
func TestAnEndHearsOfItsOwnSender(t *testing.T) {
	for _, tc := range []struct {
		name   string
		over   transfer.Event // the first sender, whose receiver has everything
		reason transfer.Reason
		says   string
		ends   func(e *ends, tx uint64) // the next one
	}{
		{"gone, then closed", transfer.SessionClosed{Session: 1, Died: true, Cause: transfer.Cause{Reason: transfer.Closed, Text: "died"}}, transfer.PeerGone, "its sender is gone",
			func(e *ends, tx uint64) { e.isDone(e.submit(3, &transfer.SealOp{Target: tx})) }},
		{"closed, then gone", transfer.Submit{Session: 1, UserData: 100, Op: &transfer.SealOp{Target: 1}}, transfer.Closed, "was closed by its sender",
			func(e *ends, _ uint64) { e.step(transfer.SessionClosed{Session: 3, Died: true}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnds(t, nil)
			tx, rx := e.open(1, send), e.open(2, recv)
			e.put(1, tx, 0, 300, "")
			e.isDone(e.get(2, rx, 0, 0, 1000))
			e.step(tc.over)
			next := e.open(3, send)
			tc.ends(e, next)
			e.is(e.get(2, rx, 1, 0, 1000), transfer.Failed, tc.reason, tc.says)
		})
	}
}

// TestAPipeOfTheNodeByItsOwnName: who names this node as the peer has its pipe, and is its receiver from the beginning.
func TestAPipeOfTheNodeByItsOwnName(t *testing.T) {
	e := newEnds(t, nil)
	e.open(1, send)
	rx := e.open(2, &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "a"})
	e.runs(rx)
	e.is(e.open(3, recv), transfer.Failed, transfer.Busy, "has a receiver already")
}

// TestEachWordStaysForItsLinger: of a pipe that ended before anybody came, also if one of that name had ended so before.
func TestEachWordStaysForItsLinger(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.PipeLinger = 10 * transfer.Second })
	for s := transfer.SessionID(1); s <= 2; s++ {
		tx := e.open(s, send)
		e.isDone(e.submit(s, &transfer.SealOp{Target: tx}))
		e.isDone(tx)
		e.pass(6 * transfer.Second)
	}
	rx := e.open(3, recv)
	e.is(e.get(3, rx, 0, 0, 10), transfer.Failed, transfer.Closed, "was closed by its sender")
}

// TestWhoWaitsHearsTheEndInOrder: those that asked first first, each time alike.
func TestWhoWaitsHearsTheEndInOrder(t *testing.T) {
	e := newEnds(t, nil)
	tx := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 10})
	rx := e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "n"})
	var gets []uint64
	for range 20 {
		gets = append(gets, e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchAny, Timeout: 1e9}))
	}
	e.submit(1, &transfer.CancelOp{Target: tx})
	var heard []uint64
	for _, c := range e.done {
		if c.Session == 2 {
			heard = append(heard, c.UserData)
		}
	}
	if !slices.Equal(heard, gets) {
		t.Errorf("the gets %v heard of the end in the order %v", gets, heard)
	}
}

// TestALongLingerIsCut: to what the configuration allows.
func TestALongLingerIsCut(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxLease = 10 * transfer.Second })
	tx := e.open(1, &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 20, Linger: 3600 * transfer.Second})
	e.put(1, tx, 0, 10, "")
	e.step(transfer.SessionClosed{Session: 1, Died: true, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
	e.pass(9 * transfer.Second)
	if n := e.m.Items(); n != 1 {
		t.Errorf("%d items are left within the linger, want 1", n)
	}
	e.pass(2 * transfer.Second)
	if n := e.m.Items(); n != 0 {
		t.Errorf("%d items are left after it", n)
	}
}

// TestWhoMetABufferHearsOfItsEnd: and does not wait for another one of its name.
func TestWhoMetABufferHearsOfItsEnd(t *testing.T) {
	e := newEnds(t, nil)
	own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 10})
	sel := e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "n"})
	e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchAny})
	e.isDone(e.submit(2, &transfer.GetOp{Target: sel, Match: transfer.MatchAny, Timeout: 1e9}))
	e.isDone(e.submit(1, &transfer.CancelOp{Target: own}))
	e.is(e.submit(2, &transfer.GetOp{Target: sel, Match: transfer.MatchAny, Timeout: 1e9}), transfer.Failed, transfer.PeerGone, "its sender is gone")
}
