package transfer_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestHostilePeerOfEnds is TestHostilePeer with pipes and lookup buffers: one of each whose home is here, one of each that asks the
// peer. When the channel is gone, all ends are closed and the deadlines are over, nothing is left.
func TestHostilePeerOfEnds(t *testing.T) {
	l := arena(t, 64)
	rapid.Check(t, func(t *rapid.T) {
		w := newStrained(t, l, 512)
		homes := map[transfer.SessionID]transfer.BindKind{1: transfer.BindSend, 2: transfer.BindOwn, 3: transfer.BindRecv, 4: transfer.BindSelect}
		for s := transfer.SessionID(1); s <= 4; s++ {
			bind := &transfer.BindOp{Kind: homes[s], Name: string([]byte{'p', 'b', 'p', 'b'}[s-1]), Capacity: 1 << 14}
			if s > 2 {
				bind.Peer, bind.Capacity = "b", 0
			}
			w.step(transfer.SessionOpened{Session: s, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
			w.step(transfer.LayoutSet{Session: s, Layout: l})
			w.step(transfer.Submit{Session: s, UserData: 1, Op: bind})
		}
		w.step(transfer.PeerUp{Node: "b", Epoch: 1})
		for i := range uint64(3) {
			w.step(transfer.Submit{Session: 1, UserData: 2 + i, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: 256 * i, Blocks: blocksOf(uint32(4*i), int(256*i))}})
			w.step(transfer.Submit{Session: 2, UserData: 2 + i, Op: w.entry(i)})
			w.step(transfer.Submit{Session: 3, UserData: 2 + i, Op: &transfer.GetOp{Target: 1, Match: transfer.MatchNext, Seq: i, Room: 256, Timeout: 5e9, Blocks: blocksOf(uint32(i), 256)}})
			w.step(transfer.Submit{Session: 4, UserData: 2 + i, Op: &transfer.GetOp{Target: 1, Match: transfer.MatchAny, Room: 256, Timeout: 5e9, Blocks: blocksOf(uint32(i), 256)}})
		}
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			msg := anyMsg(t, l, w.xfers)
			if rapid.IntRange(0, 3).Draw(t, "of ends") > 0 {
				msg = w.anyEndMsg()
			}
			w.step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg})
			w.fenced()
		}
		w.step(transfer.PeerDown{Node: "b", Epoch: 1})
		for s := transfer.SessionID(1); s <= 4; s++ {
			w.step(transfer.SessionClosed{Session: s})
		}
		w.calm()
	})
}

func (w *strained) entry(i uint64) *transfer.PutOp {
	op := &transfer.PutOp{Target: 1, Form: transfer.MatchAny, Bytes: 256 * i, Blocks: blocksOf(uint32(4*i), int(256*i))}
	switch i {
	case 1:
		op.Form, op.Tokens = transfer.MatchPrefix, []uint32{1, 2, 3}
	case 2:
		op.Form, op.Key = transfer.MatchKey, []byte("k")
	}
	return op
}

func of[T any](w *strained, name string, known []T, other T) T {
	if len(known) > 0 && rapid.IntRange(0, 4).Draw(w.t, name+" is known") > 0 {
		return rapid.SampledFrom(known).Draw(w.t, name)
	}
	return other
}

func (w *strained) anyEndMsg() transfer.Msg {
	small := rapid.Uint64Range(0, 4)
	x := of(w, "xfer", w.xfers, transfer.XferID(small.Draw(w.t, "xfer")))
	home, item := of(w, "home", w.homes, small.Draw(w.t, "home")), of(w, "item", w.items, small.Draw(w.t, "item"))
	large := rapid.SampledFrom([]uint64{0, 1, 2, 3, 256, 512, 1 << 14, 1 << 40, 1<<64 - 1})
	cause := transfer.Cause{Reason: transfer.Reason(rapid.Uint16Range(0, 20).Draw(w.t, "reason")), Text: "?"}
	buffer := rapid.Bool().Draw(w.t, "buffer")
	name := rapid.SampledFrom([]string{"p", "b", "p", "b", "q"}).Draw(w.t, "name")
	key := rapid.SampledFrom([][]byte{nil, []byte("k"), []byte("l")}).Draw(w.t, "key")
	switch rapid.IntRange(0, 9).Draw(w.t, "kind") {
	case 0, 1, 2, 3:
		m := &transfer.MsgSeek{
			Xfer: x, Bind: small.Draw(w.t, "bind"), Home: home, Base: large.Draw(w.t, "base"), Buffer: buffer, Name: name,
			Match: transfer.Match(rapid.IntRange(1, 7).Draw(w.t, "match")), Seq: of(w, "seq", []uint64{item, 0, 1, 2}, large.Draw(w.t, "seq")), Key: key,
			Room: large.Draw(w.t, "room"), Keep: transfer.Time(rapid.Int64().Draw(w.t, "keep")), Deadline: transfer.Time(rapid.Int64().Draw(w.t, "deadline")),
		}
		if rapid.Bool().Draw(w.t, "fresh") {
			m.Home, m.Xfer = 0, transfer.XferID(rapid.Uint64Range(100, 110).Draw(w.t, "new"))
		}
		if m.Match == transfer.MatchPrefix || m.Match == transfer.MatchExact {
			m.Tokens = rapid.SliceOfN(rapid.Uint32Range(1, 3), 0, 4).Draw(w.t, "tokens")
		}
		if rapid.Bool().Draw(w.t, "brings a take") {
			m.Take = w.anyTake(x, uint32(m.Room))
			m.Take.Blocks[0].Group, m.Take.Blocks[0].FirstToken = uint32(small.Draw(w.t, "group"))/4, uint32(small.Draw(w.t, "first"))/4
		}
		return m
	case 4:
		return &transfer.MsgFound{
			Xfer: x, Home: home, Base: large.Draw(w.t, "base"), Item: item, Bytes: large.Draw(w.t, "bytes"), Capacity: large.Draw(w.t, "capacity"),
			Matched: large.Draw(w.t, "matched"), Key: of(w, "item's key", w.keys, key), Token: of(w, "item's token", w.tokens, []byte("0123456789abcdef")),
			Taken: rapid.Bool().Draw(w.t, "taken"),
		}
	case 5:
		return &transfer.MsgSeekParked{Xfer: x, Home: home, Base: large.Draw(w.t, "base"), Why: uint8(large.Draw(w.t, "why"))}
	case 6:
		return &transfer.MsgSeekRefuse{Xfer: x, Cause: cause, Retry: transfer.Time(rapid.Int64().Draw(w.t, "retry"))}
	case 7:
		return &transfer.MsgUnbind{Bind: small.Draw(w.t, "bind"), Buffer: buffer, Name: name}
	case 8: // the item that was found is taken, or something like it
		return w.anyTake(x, uint32(large.Draw(w.t, "bytes")))
	}
	return &transfer.MsgEnd{Xfer: x, Status: transfer.Status(small.Draw(w.t, "status")), Cause: cause}
}

// anyTake is of the item that was found, or of something like it.
func (w *strained) anyTake(x transfer.XferID, bytes uint32) *transfer.MsgTake {
	return &transfer.MsgTake{
		Xfer: x, Engine: "f", TakeID: uint64(x), Parts: 1, Key: of(w, "item's key", w.keys, []byte("k0")), Token: of(w, "item's token", w.tokens, []byte("0123456789abcdef")),
		Ranks: []transfer.RankRef{{Digest: w.layout.Digest()}}, Blocks: []layout.BlockList{{NTokens: bytes, IDs: []uint32{0, 1}}},
		Deadline: transfer.Time(rapid.Int64().Draw(w.t, "deadline")),
	}
}
