package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// askOften has the peer ask a hundred times a second for five seconds, and checks how often it is answered
// with what is long: at once, and then as often as one that has lost something would ask.
func askOften(t *testing.T, now *transfer.Time, step func(transfer.Event), msg transfer.Msg, answers func() int) {
	t.Helper()
	ask := func() int {
		before := answers()
		step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg})
		return answers() - before
	}
	if n := ask(); n != 1 {
		t.Errorf("the first question has %d answers, want 1", n)
	}
	total := 0
	for range 500 {
		*now += 10 * transfer.Millisecond
		total += ask()
	}
	if total < 5 || total > 10 {
		t.Errorf("500 questions in 5 s have %d answers, want 5 to 10", total)
	}
}

// TestAGrantIsNotRepeatedForEachQuestion: neither for a take that is asked for again, nor for layouts.
func TestAGrantIsNotRepeatedForEachQuestion(t *testing.T) {
	for what, msg := range map[string]func(*asker) transfer.Msg{
		"the take": func(a *asker) transfer.Msg { return takeOf(1, oneRank(a.tb)) },
		"layouts": func(a *asker) transfer.Msg {
			return &transfer.MsgNeedLayout{Xfer: 1, End: transfer.Consumer, Digests: [][32]byte{oneRank(a.tb).Digest()}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			a := newAsker(t, 0)
			a.offers(1)
			l := oneRank(t)
			a.asks(layoutMsg(l))
			a.asks(takeOf(1, l))
			a.plans(1)
			grants := 0
			askOften(t, &a.now, func(ev transfer.Event) {
				a.step(ev)
				for _, m := range a.said {
					if _, ok := m.(*transfer.MsgGrant); ok {
						grants++
					}
				}
			}, msg(a), func() int { return grants })
		})
	}
}

// TestATakeIsNotRepeatedForEachQuestion: whoever has granted nothing yet asks for layouts as often as it likes.
func TestATakeIsNotRepeatedForEachQuestion(t *testing.T) {
	w := newTaker(t, 0)
	w.users++
	w.step(transfer.Submit{Session: 1, UserData: w.users, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: 60 * transfer.Second, Blocks: someBlocks(1, 1),
	}})
	msg := &transfer.MsgNeedLayout{Xfer: w.xfers[0], End: transfer.Producer, Digests: [][32]byte{oneRank(t).Digest()}}
	askOften(t, &w.now, w.step, msg, func() int { return len(w.xfers) })
}

// TestALayoutThatIsLackedIsSentAtOnce: whenever the peer asked for the take again, which was no question about layouts.
func TestALayoutThatIsLackedIsSentAtOnce(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.now += transfer.Second
	a.asks(takeOf(1, l))
	a.plans(1)
	a.now += transfer.Millisecond
	a.asks(&transfer.MsgNeedLayout{Xfer: 1, End: transfer.Consumer, Digests: [][32]byte{l.Digest()}})
	for _, m := range a.said {
		if _, ok := m.(*transfer.MsgLayout); ok {
			return
		}
	}
	t.Errorf("b lacks a layout, and is told %+v", a.said)
}

// TestALayoutIsSentOnceForEachQuestion: ranks of an engine may share one, and a mad peer may name it again and again. Who asks names it once.
func TestALayoutIsSentOnceForEachQuestion(t *testing.T) {
	const ranks = 300
	l := oneRank(t)
	layouts := func(said []transfer.Msg) (n int) {
		for _, msg := range said {
			if _, ok := msg.(*transfer.MsgLayout); ok {
				n++
			}
		}
		return n
	}
	digests := make([][32]byte, ranks)
	for i := range digests {
		digests[i] = l.Digest()
	}
	a := newAsker(t, 0)
	a.offers(1)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.plans(1)
	if a.asks(&transfer.MsgNeedLayout{Xfer: 1, End: transfer.Consumer, Digests: digests}); layouts(a.said) != 1 {
		t.Errorf("asked for one layout by %d names, node a sends %d", ranks, layouts(a.said))
	}

	a = newAsker(t, 0)
	a.offers(1)
	msg := takeOf(1, l)
	msg.Ranks = nil
	for i := range uint32(ranks) {
		msg.Ranks = append(msg.Ranks, transfer.RankRef{Rank: i, Digest: l.Digest()})
	}
	a.asks(msg)
	asked := 0
	for _, msg := range a.said {
		if n, ok := msg.(*transfer.MsgNeedLayout); ok {
			asked += len(n.Digests)
		}
	}
	if asked != 1 {
		t.Errorf("%d ranks share a layout, and it is asked for %d times", ranks, asked)
	}
}
