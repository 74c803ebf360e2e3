package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAPlanIsOfWhoTakes: of a session of this node, from it or from another; what another node takes is of none of its users.
func TestAPlanIsOfWhoTakes(t *testing.T) {
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }})
	l := oneRank(t)
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1, Hints: []string{"b"}})
	for id, engine := range map[transfer.SessionID]string{1: "e", 2: "f"} {
		m.Step(1, transfer.SessionOpened{Session: id, Engine: engine, User: 10 + uint32(id), Role: transfer.Worker, Credits: 1000})
		m.Step(1, transfer.LayoutSet{Session: id, Layout: l})
	}
	planned := func(ev transfer.Event) (user uint32, ask *transfer.MsgTake) {
		t.Helper()
		effects := append([]transfer.Effect(nil), m.Step(1, ev)...)
		plans := 0
		for _, eff := range effects {
			switch eff := eff.(type) {
			case transfer.MakePlan:
				user = eff.User
				plans++
			case transfer.Send:
				if take, ok := eff.Msg.(*transfer.MsgTake); ok {
					ask = take
				}
			}
		}
		if plans != 1 && ask == nil {
			t.Fatalf("%d plans are to be made: %+v", plans, effects)
		}
		return user, ask
	}
	take := func(user uint64, peer string, first uint32) transfer.Submit {
		return transfer.Submit{Session: 2, UserData: user, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, TakeID: user, Peer: peer, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(first, 1),
		}}
	}
	m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Consumers: 3, Lease: 5 * transfer.Second, Blocks: someBlocks(0, 1)}})
	if user, _ := planned(take(1, "", 0)); user != 12 {
		t.Errorf("a take within the node: user %d, want 12", user)
	}
	_, ask := planned(take(2, "b", 1))
	m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgLayout{Layout: l}})
	if user, _ := planned(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGrant{
		Xfer: ask.Xfer, Incarnation: 1, Last: true, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: someBlocks(0, 1), Transport: "tcp", Slices: 1, Bytes: 4096,
	}}); user != 12 {
		t.Errorf("a take from another node: user %d, want 12", user)
	}
	ask.Xfer, ask.Engine = 77, "of b"
	if user, _ := planned(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: ask}); user != 0 {
		t.Errorf("a take of another node: user %d, want none", user)
	}
}
