package transfer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestTokensBetweenPiecesAreMissing: a producer that leaves some out between two pieces has not sent the blocks into which they belong, and the
// take says so, although every slice of both pieces is in place.
func TestTokensBetweenPiecesAreMissing(t *testing.T) {
	w := newTaker(t, 0)
	w.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(20, 3),
	}})
	x := w.xfers[0]
	for seg, token := range []uint32{0, 2} {
		w.says(&transfer.MsgGrant{
			Xfer: x, Seg: uint32(seg), Incarnation: 1, Engine: "p", Transport: "tcp", Last: seg == 1, Slices: 1, Bytes: 4096, Tokens: 2*uint32(seg) + 1,
			Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, Blocks: []layout.BlockList{{FirstToken: token, NTokens: 1, IDs: []uint32{token}}},
		})
		w.planned(x, uint32(seg), transfer.Planned{Slices: 1, Bytes: 4096})
		w.lands(x, uint32(seg), 0)
	}
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 2})
	w.fenced()
	want := []layout.Run{{First: 21, Count: 1}}
	if c, ended := w.ends[1]; !ended || c.Status != transfer.Failed || c.Reason != transfer.NotFound || !slices.Equal(c.Failed, want) {
		t.Errorf("the take ended %+v, want it to lack %v", c, want)
	} else if strings.Contains(c.Text, " (it has") {
		t.Errorf("what lacks a token in its middle, and has the last one, says %q", c.Text)
	}
}

// TestAGroupOfAnotherNodeIsNotMissing: an engine on two nodes offers on each of them what its ranks there have, which may be no layer of a group.
// A take of one of these offers does not lack that group, in however many pieces the offer comes; a take from an engine on one node does.
func TestAGroupOfAnotherNodeIsNotMissing(t *testing.T) {
	here, both := groupsOfLayers(t, [2]uint32{0, 0}), groupsOfLayers(t, [2]uint32{0, 0}, [2]uint32{1, 1})
	for _, c := range []struct {
		name   string
		pieces uint32
		sealed bool // when it is taken
		whole  bool
		lacks  []layout.Run
	}{
		{"in one piece", 1, true, false, nil},
		{"in one piece, and not sealed yet", 1, false, false, nil},
		{"in two pieces", 2, true, false, nil},
		{"of an engine on one node", 2, true, true, []layout.Run{{Group: 1, First: 30, Count: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTaker(t, 0)
			w.step(transfer.SessionOpened{Session: 2, Engine: "f", Role: transfer.Worker, Credits: 1000})
			w.step(transfer.LayoutSet{Session: 2, Layout: both})
			w.says(layoutMsg(here))
			w.step(transfer.Submit{Session: 2, UserData: 1, Op: &transfer.TakeOp{
				Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Second,
				Blocks: []layout.BlockList{{NTokens: 2, IDs: []uint32{20, 21}}, {Group: 1, NTokens: 2, IDs: []uint32{30, 31}}},
			}})
			x, n := w.xfers[0], 2/c.pieces
			for seg := range c.pieces {
				w.says(&transfer.MsgGrant{
					Xfer: x, Seg: seg, Incarnation: 1, Engine: "p", Transport: "tcp", Last: c.sealed && seg == c.pieces-1, Whole: c.whole, Slices: 1, Bytes: 4096,
					Ranks: []transfer.RankRef{{Digest: here.Digest()}}, Blocks: []layout.BlockList{{FirstToken: seg * n, NTokens: n, IDs: []uint32{0, 1}[:n]}},
				})
				w.planned(x, seg, transfer.Planned{Slices: 1, Bytes: 4096})
				w.lands(x, seg, 0)
			}
			w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: c.pieces})
			w.fenced()
			want := transfer.Done
			if c.lacks != nil {
				want = transfer.Failed
			}
			if e, ended := w.ends[1]; !ended || e.Status != want || !slices.Equal(e.Failed, c.lacks) {
				t.Errorf("the take ended %+v, want %s, and failed blocks %v", e, want, c.lacks)
			}
		})
	}
}
