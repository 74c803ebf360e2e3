package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestACommitRecordOutlivesItsChannel: a channel that is lost right before or right after the fence of a take that is complete is opened
// again to say that the take is done. A daemon that is new there hears which instance of the engine took the offer.
func TestACommitRecordOutlivesItsChannel(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, then string
		next         uint64 // incarnation of the daemon that answers then
	}{{"lost before the fence", "down", "fenced", 1}, {"lost after the fence", "fenced", "down", 1}, {"lost with its daemon", "fenced", "down", 2}} {
		t.Run(c.name, func(t *testing.T) {
			l := oneRank(t)
			m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 40 }})
			dials := 0
			var leg transfer.Leg
			var said []*transfer.MsgEnd
			var taken []*transfer.MsgKey
			var done transfer.Status
			step := func(ev transfer.Event) {
				for _, e := range m.Step(1, ev) {
					switch e := e.(type) {
					case transfer.Dial:
						dials++
					case transfer.MakePlan:
						leg = e.Leg
					case transfer.Complete:
						done = e.Status
					case transfer.Send:
						switch msg := e.Msg.(type) {
						case *transfer.MsgEnd:
							said = append(said, msg)
						case *transfer.MsgKey:
							taken = append(taken, msg)
						}
					}
				}
			}
			hear := func(msg transfer.Msg) { step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) }
			lists := []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}
			step(transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 1000})
			step(transfer.LayoutSet{Session: 1, Layout: l})
			step(transfer.PeerUp{Node: "b", Epoch: 1, Incarnation: 1})
			step(transfer.Submit{Session: 1, UserData: 7, Op: &transfer.TakeOp{
				Key: []byte("k"), Token: []byte("0123456789abcdef"), Peer: "b", TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Blocks: lists,
			}})
			hear(&transfer.MsgLayout{Layout: l})
			x := transfer.XferID(1<<40 + 1)
			hear(&transfer.MsgGrant{
				Xfer: x, Incarnation: 3, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: lists, Last: true, Transport: "tcp", Slices: 1, Bytes: 4096,
			})
			step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 4096})
			step(transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg}})
			hear(&transfer.MsgSent{Xfer: x, Incarnation: 3, Segs: 1})
			events := map[string]transfer.Event{"fenced": transfer.Fenced{Leg: leg}, "down": transfer.PeerDown{Node: "b", Epoch: 1}}
			step(events[c.before])
			step(events[c.then])
			if done != transfer.Done || dials != 1 {
				t.Fatalf("the take ended %v, and the channel was opened %d times again, want done and once", done, dials)
			}
			said = nil
			step(transfer.PeerUp{Node: "b", Epoch: 2, Incarnation: c.next, Hints: []string{"b"}})
			if len(said) != 1 || said[0].Xfer != x || said[0].Incarnation != 3 || said[0].Status != transfer.Done {
				t.Errorf("over the next channel the producer hears %+v", said)
			}
			if isNew := c.next != 1; len(taken) > 1 || (len(taken) == 1) != isNew {
				t.Fatalf("it hears %d times who took the offer, a new daemon: %v", len(taken), isNew)
			}
			for _, k := range taken {
				if !k.Drop || k.Engine != "e" || k.Instance != "i" || string(k.Key) != "k" || string(k.Token) != "0123456789abcdef" {
					t.Errorf("it hears that %+v took the offer", k)
				}
			}
		})
	}
}
