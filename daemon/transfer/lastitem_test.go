package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAnItemOfWhichItsSenderCannotHearIsNotHandedOut by a daemon that ends and closes its channels: the next receiver gets the item. As long as
// the sender can be told, or will be, an item that is whole is handed out.
func TestAnItemOfWhichItsSenderCannotHearIsNotHandedOut(t *testing.T) {
	for name, c := range map[string]struct {
		ends, loses bool
		done        bool
	}{
		"nothing":                    {done: true},
		"the channel is lost":        {loses: true, done: true}, // the commit record goes over the next one
		"the daemon ends":            {ends: true},
		"it has closed its channels": {ends: true, loses: true},
	} {
		var seek transfer.XferID
		var fence *transfer.Leg
		done := false
		m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
		step := func(ev transfer.Event) {
			for _, e := range m.Step(1, ev) {
				switch e := e.(type) {
				case transfer.Send:
					if msg, ok := e.Msg.(*transfer.MsgSeek); ok {
						seek = msg.Xfer
					}
				case transfer.Fence:
					fence = &e.Leg
				case transfer.Complete:
					done = done || e.UserData == 2 && e.Status == transfer.Done
				}
			}
		}
		says := func(msg transfer.Msg) { step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) }
		step(transfer.PeerUp{Node: "b", Epoch: 1, Hints: []string{"b"}})
		step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
		step(transfer.LayoutSet{Session: 1, Layout: arena(t, 16)})
		step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
		step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.GetOp{Target: 1, Match: transfer.MatchNext, Room: 10, Timeout: transfer.Second, Blocks: blocksOf(0, 10)}})
		says(layoutMsg(arena(t, 16)))
		says(&transfer.MsgFound{Xfer: seek, Home: 7, Item: 8, Bytes: 10, Capacity: 1 << 14, Key: []byte("k"), Token: anyToken, Taken: true})
		says(&transfer.MsgGrant{Xfer: seek, Incarnation: 1, Engine: "p", Transport: "tcp", Last: true, Slices: 1, Bytes: 10, Ranks: []transfer.RankRef{{Digest: arena(t, 16).Digest()}}, Blocks: blocksOf(0, 10)})
		leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: seek, End: transfer.Consumer}
		step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 10})
		step(transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg}})
		says(&transfer.MsgSent{Xfer: seek, Incarnation: 1, Segs: 1})
		if fence == nil || done {
			t.Fatalf("%s: the item is not there, but for its fence", name)
		}
		if c.ends {
			step(transfer.Drain{Stop: true})
			step(transfer.Ending{})
		}
		if c.loses {
			step(transfer.PeerDown{Node: "b", Epoch: 1})
		}
		step(transfer.Fenced{Leg: *fence})
		if done != c.done {
			t.Errorf("%s: the item is handed out: %v, want %v", name, done, c.done)
		}
	}
}
