package transfer_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestHostilePeer sends a machine that offers and takes whatever a peer may think of, in any order and at any time. It
// must neither fall over nor keep anything of it: when the channel is gone and the deadlines are over, nothing is left.
func TestHostilePeer(t *testing.T) {
	l := oneRank(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newStrained(t, l, 8192)
		w.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
		w.step(transfer.LayoutSet{Session: 1, Layout: l})
		w.step(transfer.PeerUp{Node: "b", Epoch: 1})
		token := []byte("0123456789abcdef")
		for i := range 3 {
			key := []byte{'k', byte('0' + i)}
			lists := []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(i)}}}
			w.step(transfer.Submit{Session: 1, UserData: uint64(i + 1), Op: &transfer.OfferOp{Key: key, Token: token, Sealed: i != 1, Blocks: lists}})
			lists = []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(i + 10)}}}
			w.step(transfer.Submit{Session: 1, UserData: uint64(i + 11), Op: &transfer.TakeOp{
				Key: key, Token: token, Peer: "b", TakeID: uint64(i), LayerSlot: uint32(i), Layered: i == 2, Blocks: lists,
			}})
		}
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			w.step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: anyMsg(t, l, w.xfers)})
			w.fenced()
		}
		w.step(transfer.PeerDown{Node: "b", Epoch: 1})
		w.step(transfer.SessionClosed{Session: 1})
		w.calm()
	})
}

// anyMsg draws a message that names what is there, or what is not.
func anyMsg(t *rapid.T, l *layout.Layout, xfers []transfer.XferID) transfer.Msg {
	x := transfer.XferID(rapid.Uint64Range(0, 5).Draw(t, "xfer"))
	if len(xfers) > 0 && rapid.Bool().Draw(t, "known") {
		x = rapid.SampledFrom(xfers).Draw(t, "of")
	}
	seg := rapid.SampledFrom([]uint32{0, 0, 0, 1, 2, 1 << 15, 1<<32 - 1}).Draw(t, "seg")
	small := rapid.SampledFrom([]uint32{0, 1, 2, 3, 63, 64, 65, 1<<32 - 1})
	key := rapid.SampledFrom([][]byte{[]byte("k0"), []byte("k1"), []byte("k2"), nil}).Draw(t, "key")
	token := rapid.SampledFrom([][]byte{[]byte("0123456789abcdef"), []byte("wrong"), nil}).Draw(t, "token")
	refs := []transfer.RankRef{{Rank: small.Draw(t, "rank"), Digest: l.Digest()}}
	if rapid.IntRange(0, 3).Draw(t, "strange") == 0 {
		refs[0].Digest[0]++
	}
	lists := []layout.BlockList{{
		Group: rapid.SampledFrom([]uint32{0, 0, 0, 7}).Draw(t, "group"), FirstToken: small.Draw(t, "first"), NTokens: small.Draw(t, "n"),
		IDs: rapid.SliceOfN(rapid.Uint32(), 0, 3).Draw(t, "ids"),
	}}
	part := rapid.IntRange(-1, 2)
	inc := rapid.Uint64Range(0, 2).Draw(t, "incarnation")
	cause := transfer.Cause{Reason: transfer.Reason(rapid.Uint16Range(0, 20).Draw(t, "reason")), Text: "?"}
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0, 1:
		return &transfer.MsgLayout{Layout: l}
	case 2:
		return &transfer.MsgTake{Xfer: x, Engine: "f", TakeID: 1, Part: part.Draw(t, "part"), Parts: part.Draw(t, "parts"), Key: key, Token: token,
			Ranks: refs, Blocks: lists, Deadline: transfer.Time(rapid.Int64().Draw(t, "deadline"))}
	case 3:
		return &transfer.MsgNeedLayout{Xfer: x, End: transfer.End(part.Draw(t, "end")), Digests: [][32]byte{refs[0].Digest}}
	case 4:
		return &transfer.MsgParked{Xfer: x}
	case 5:
		return &transfer.MsgRefuse{Xfer: x, Cause: cause, Retry: transfer.Time(rapid.Int64().Draw(t, "retry"))}
	case 6, 7:
		return &transfer.MsgGrant{Xfer: x, Seg: seg, Incarnation: inc, Ranks: refs, Blocks: lists, Last: rapid.Bool().Draw(t, "last"), Transport: "tcp",
			Slices: small.Draw(t, "slices") &^ 1, Bytes: 8192, HasInline: rapid.Bool().Draw(t, "has inline"), Layered: rapid.Bool().Draw(t, "layered")}
	case 8:
		return &transfer.MsgGo{Xfer: x, Seg: seg}
	case 9:
		return &transfer.MsgSent{Xfer: x, Incarnation: inc, Segs: small.Draw(t, "segs")}
	case 10:
		return &transfer.MsgResend{Xfer: x, Seg: seg, Attempt: small.Draw(t, "attempt"), Slices: []uint32{small.Draw(t, "slice")}}
	case 11:
		return &transfer.MsgEnd{Xfer: x, Status: transfer.Status(small.Draw(t, "status")), Cause: cause}
	case 12:
		return &transfer.MsgAbort{Xfer: x, Cause: cause}
	}
	return &transfer.MsgKey{ID: 1, Drop: rapid.Bool().Draw(t, "drop"), Engine: "f", Key: key, Token: token, For: transfer.Time(rapid.Int64().Draw(t, "for"))}
}
