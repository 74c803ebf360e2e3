package peer

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// introduction carries a layout of so many blocks.
func introduction(blocks uint64) *transfer.MsgLayout {
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: blocks, BlockStride: 128, TokenStride: 32, HeadStride: 16, ContentBytes: 16, Kind: layout.Paged, BlockSize: 4, Heads: 2,
		TotalHeads: 2, Part: "kv",
	}}, []layout.Field{{Key: "dtype", Value: "bf16"}}, nil)
	if err != nil {
		panic(err)
	}
	return &transfer.MsgLayout{Layout: l}
}

// samples is one message of each kind with every field set.
func samples() []transfer.Msg {
	var d, e [32]byte
	for i := range d {
		d[i], e[i] = byte(i), byte(2*i)
	}
	ranks := []transfer.RankRef{{Rank: 1, Digest: d}, {Rank: 2, Digest: e}}
	lists := []layout.BlockList{{Group: 1, FirstToken: 16, NTokens: 48, IDs: []uint32{7, 8, layout.NoBlock, 3}}}
	by := map[uint32][]layout.BlockList{2: {{NTokens: 16, IDs: []uint32{300}}}, 5: {{Group: 1, NTokens: 32, IDs: []uint32{1, 2}}}}
	key, token := []byte("request-1"), []byte("0123456789abcdef")
	why := transfer.Cause{Reason: transfer.Expired, Text: "the lease ended"}
	return []transfer.Msg{
		introduction(8),
		&transfer.MsgTake{
			Xfer: 9, Engine: "decode-0", Instance: "a1", TakeID: 4, Part: 1, Parts: 2, Key: key, Token: token, Content: []byte{0xc0}, Trace: "t-7",
			Layered: true, Ranks: ranks, Blocks: lists, Deadline: 30e9,
		},
		&transfer.MsgNeedLayout{Xfer: 9, End: transfer.Consumer, Digests: [][32]byte{d, e}},
		&transfer.MsgParked{Xfer: 9},
		&transfer.MsgRefuse{Xfer: 9, Cause: why, Retry: 1e9},
		&transfer.MsgGrant{
			Xfer: 9, Seg: 1, Incarnation: 77, Engine: "prefill-0", Whole: true, Ranks: ranks, Blocks: lists, BlocksBy: by, Tokens: 48, Last: true,
			Layered: true, Transport: "tcp", Slices: 3, Bytes: 1 << 20, HasInline: true, Inline: []byte("payload"), InlineCRC: 0xfeedface,
		},
		&transfer.MsgGo{Xfer: 9, Seg: 1},
		&transfer.MsgSent{Xfer: 9, Incarnation: 77, Segs: 2},
		&transfer.MsgResend{Xfer: 9, Seg: 1, Attempt: 2, Slices: []uint32{0, 300, 7}},
		&transfer.MsgEnd{Xfer: 9, Incarnation: 77, Status: transfer.Failed, Cause: why},
		&transfer.MsgEndAck{Xfer: 9},
		&transfer.MsgAbort{Xfer: 9, Cause: why},
		&transfer.MsgKey{ID: 5, Drop: true, Engine: "decode-0", Instance: "i-3", Key: key, Token: token, Trace: "t-7", For: 2e9},
		&transfer.MsgKeyAck{ID: 5, Cause: why},
		&transfer.MsgSeek{
			Xfer: 9, Bind: 6, Home: 8, Base: 2, Buffer: true, Name: "prefill-0", Token: token, Match: transfer.MatchPrefix, Seq: 11, Key: key,
			Tokens: []uint32{1, 300, 2}, Room: 1 << 20, Keep: 30e9, Deadline: 29e9,
			Take: &transfer.MsgTake{Engine: "decode-0", Instance: "a1", TakeID: 4, Parts: 1, Ranks: ranks[:1], Blocks: lists},
		},
		&transfer.MsgFound{
			Xfer: 9, Home: 8, Base: 2, Item: 12, Bytes: 1 << 10, Capacity: 1 << 26, Matched: 3, Meta: []byte("meta"), Key: key, Token: token,
			Taken: true,
		},
		&transfer.MsgSeekParked{Xfer: 9, Home: 8, Base: 2, Why: 1},
		&transfer.MsgSeekRefuse{Xfer: 9, Cause: why, Retry: 1e9},
		&transfer.MsgUnbind{Bind: 6, Buffer: true, Name: "prefill-0"},
		&transfer.MsgUnbindAck{Bind: 6},
	}
}

// A sample that leaves a field out would let it be forgotten on the wire.
func TestSamplesSetEveryField(t *testing.T) {
	for _, m := range samples() {
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%T.%s is zero", m, v.Type().Field(i).Name)
			}
		}
	}
}

// kindOf says which kind of frame carries a message.
func kindOf(m transfer.Msg) protowire.Number {
	kinds := map[string]protowire.Number{
		"MsgLayout": kindLayout, "MsgTake": kindTake, "MsgNeedLayout": kindNeedLayout, "MsgParked": kindParked, "MsgRefuse": kindRefuse, "MsgGrant": kindGrant,
		"MsgGo": kindGo, "MsgSent": kindSent, "MsgResend": kindResend, "MsgEnd": kindEnd, "MsgEndAck": kindEndAck, "MsgAbort": kindAbort,
		"MsgKey": kindKey, "MsgKeyAck": kindKeyAck, "MsgSeek": kindSeek, "MsgFound": kindFound, "MsgSeekParked": kindSeekParked, "MsgSeekRefuse": kindSeekRefuse,
		"MsgUnbind": kindUnbind, "MsgUnbindAck": kindUnbindAck,
	}
	return kinds[strings.TrimPrefix(reflect.TypeOf(m).String(), "*transfer.")]
}

// drawMsg draws any message that decode accepts.
func drawMsg(t *rapid.T) transfer.Msg {
	xfer := transfer.XferID(rapid.Uint64().Draw(t, "xfer"))
	u32, u64, yes := rapid.Uint32(), rapid.Uint64(), rapid.Bool()
	key, token := rapid.SliceOfN(rapid.Byte(), 1, maxKey), rapid.SliceOfN(rapid.Byte(), minToken, maxToken)
	text := func(n int) *rapid.Generator[string] { return rapid.StringN(0, n/4, n) }
	switch rapid.IntRange(0, 19).Draw(t, "kind") {
	case 0:
		return introduction(rapid.Uint64Range(1, layout.MaxBlocks).Draw(t, "blocks"))
	case 1:
		m := drawTake(t)
		m.Xfer, m.Key, m.Token, m.Deadline = xfer, key.Draw(t, "key"), token.Draw(t, "token"), drawTime(t)
		return m
	case 2:
		return &transfer.MsgNeedLayout{Xfer: xfer, End: rapid.SampledFrom([]transfer.End{transfer.Producer, transfer.Consumer}).Draw(t, "end"), Digests: drawDigests(t)}
	case 3:
		return &transfer.MsgParked{Xfer: xfer}
	case 4:
		return &transfer.MsgRefuse{Xfer: xfer, Cause: drawFailure(t), Retry: drawTime(t)}
	case 5:
		return &transfer.MsgGrant{
			Xfer: xfer, Seg: u32.Draw(t, "seg"), Incarnation: u64.Draw(t, "incarnation"), Engine: text(maxID).Draw(t, "engine"), Whole: yes.Draw(t, "whole"),
			Ranks: drawRanks(t), Blocks: drawLists(t), BlocksBy: drawBy(t), Tokens: u32.Draw(t, "tokens"), Last: yes.Draw(t, "last"), Layered: yes.Draw(t, "layered"),
			Transport: text(maxTransport).Draw(t, "transport"), Slices: u32.Draw(t, "slices"), Bytes: u64.Draw(t, "bytes"), HasInline: yes.Draw(t, "inline"),
			Inline: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), InlineCRC: u32.Draw(t, "crc"),
		}
	case 6:
		return &transfer.MsgGo{Xfer: xfer, Seg: u32.Draw(t, "seg")}
	case 7:
		return &transfer.MsgSent{Xfer: xfer, Incarnation: u64.Draw(t, "incarnation"), Segs: u32.Draw(t, "segs")}
	case 8:
		return &transfer.MsgResend{Xfer: xfer, Seg: u32.Draw(t, "seg"), Attempt: u32.Draw(t, "attempt"), Slices: rapid.SliceOf(u32).Draw(t, "slices")}
	case 9:
		s := rapid.SampledFrom([]transfer.Status{transfer.Done, transfer.Failed, transfer.WasCancelled}).Draw(t, "status")
		return &transfer.MsgEnd{Xfer: xfer, Status: s, Cause: drawCause(t), Incarnation: u64.Draw(t, "incarnation")}
	case 10:
		return &transfer.MsgEndAck{Xfer: xfer}
	case 11:
		return &transfer.MsgAbort{Xfer: xfer, Cause: drawFailure(t)}
	case 12:
		return &transfer.MsgKey{
			ID: u64.Draw(t, "id"), Drop: yes.Draw(t, "drop"), Engine: text(maxID).Draw(t, "engine"), Instance: text(maxID).Draw(t, "instance"), Key: key.Draw(t, "key"), Token: token.Draw(t, "token"),
			Trace: text(maxTrace).Draw(t, "trace"), For: drawTime(t),
		}
	case 13:
		var take *transfer.MsgTake
		if yes.Draw(t, "take") {
			take = drawTake(t)
		}
		return &transfer.MsgSeek{
			Xfer: xfer, Bind: u64.Draw(t, "bind"), Home: u64.Draw(t, "home"), Base: u64.Draw(t, "base"), Buffer: yes.Draw(t, "buffer"),
			Name: rapid.StringN(1, 64, maxName).Draw(t, "name"), Token: rapid.SliceOfN(rapid.Byte(), 0, maxToken).Draw(t, "token"),
			Match: transfer.Match(rapid.IntRange(1, 7).Draw(t, "match")), Seq: u64.Draw(t, "seq"), Key: rapid.SliceOfN(rapid.Byte(), 0, maxKey).Draw(t, "key"),
			Tokens: rapid.SliceOf(u32).Draw(t, "tokens"), Room: u64.Draw(t, "room"), Keep: drawTime(t), Deadline: drawTime(t),
			Take: take,
		}
	case 14:
		return &transfer.MsgFound{
			Xfer: xfer, Home: u64.Draw(t, "home"), Base: u64.Draw(t, "base"), Item: u64.Draw(t, "item"), Bytes: uint64(rapid.Uint32().Draw(t, "bytes")),
			Capacity: u64.Draw(t, "capacity"), Matched: u64.Draw(t, "matched"), Meta: rapid.SliceOfN(rapid.Byte(), 0, maxMeta).Draw(t, "meta"),
			Key: key.Draw(t, "key"), Token: token.Draw(t, "token"), Taken: yes.Draw(t, "taken"),
		}
	case 15:
		return &transfer.MsgSeekParked{Xfer: xfer, Home: u64.Draw(t, "home"), Base: u64.Draw(t, "base"), Why: rapid.Uint8().Draw(t, "why")}
	case 16:
		return &transfer.MsgSeekRefuse{Xfer: xfer, Cause: drawFailure(t), Retry: drawTime(t)}
	case 17:
		return &transfer.MsgUnbind{Bind: u64.Draw(t, "bind"), Buffer: yes.Draw(t, "buffer"), Name: text(maxName).Draw(t, "name")}
	case 18:
		return &transfer.MsgUnbindAck{Bind: u64.Draw(t, "bind")}
	}
	return &transfer.MsgKeyAck{ID: u64.Draw(t, "id"), Cause: drawCause(t)}
}

// drawTake draws what a take says, also when it comes with a seek.
func drawTake(t *rapid.T) *transfer.MsgTake {
	parts := rapid.IntRange(1, maxParts).Draw(t, "parts")
	return &transfer.MsgTake{
		Engine: rapid.StringN(1, 32, maxID).Draw(t, "engine"), Instance: rapid.StringN(0, maxID/4, maxID).Draw(t, "instance"), TakeID: rapid.Uint64().Draw(t, "id"),
		Part: rapid.IntRange(0, parts-1).Draw(t, "part"), Parts: parts,
		Content: rapid.SliceOfN(rapid.Byte(), 0, maxContent).Draw(t, "content"), Trace: rapid.StringN(0, maxTrace/4, maxTrace).Draw(t, "trace"),
		Layered: rapid.Bool().Draw(t, "layered"), Ranks: drawRanks(t), Blocks: drawLists(t),
	}
}

func drawDigest(t *rapid.T) [32]byte {
	return [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
}

func drawDigests(t *rapid.T) (out [][32]byte) {
	for range rapid.IntRange(0, 3).Draw(t, "digests") {
		out = append(out, drawDigest(t))
	}
	return out
}

func drawRanks(t *rapid.T) (out []transfer.RankRef) {
	for _, d := range drawDigests(t) {
		out = append(out, transfer.RankRef{Rank: rapid.Uint32().Draw(t, "rank"), Digest: d})
	}
	return out
}

func drawLists(t *rapid.T) (out []layout.BlockList) {
	for range rapid.IntRange(0, 3).Draw(t, "lists") {
		out = append(out, layout.BlockList{
			Group: rapid.Uint32().Draw(t, "group"), FirstToken: rapid.Uint32().Draw(t, "first"), NTokens: rapid.Uint32().Draw(t, "tokens"),
			IDs: rapid.SliceOf(rapid.Uint32()).Draw(t, "ids"),
		})
	}
	return out
}

func drawBy(t *rapid.T) map[uint32][]layout.BlockList {
	out := map[uint32][]layout.BlockList{}
	for range rapid.IntRange(0, 2).Draw(t, "by") {
		out[rapid.Uint32().Draw(t, "rank")] = drawLists(t)
	}
	return out
}

func drawCause(t *rapid.T) transfer.Cause {
	return transfer.Cause{Reason: transfer.Reason(rapid.Uint16Range(0, uint16(transfer.Closed)).Draw(t, "reason")), Text: rapid.StringN(0, 100, maxText).Draw(t, "text")}
}

func drawFailure(t *rapid.T) transfer.Cause {
	c := drawCause(t)
	c.Reason = max(c.Reason, transfer.Invalid)
	return c
}

func drawTime(t *rapid.T) transfer.Time {
	return transfer.Time(rapid.Int64Range(0, 30*24*3600*1e9).Draw(t, "time"))
}

// read decodes one frame from the front of wire.
func read(wire []byte) (frame, transfer.Msg, error) {
	f, err := newFrames(bytes.NewReader(wire)).next(maxFrame)
	if err != nil {
		return f, nil, err
	}
	msg, err := decode(f.kind, f.body, new(stores))
	return f, msg, err
}
