package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestRefusalsOfEnds: what is wrong with an operation of an end of a pipe or lookup buffer is refused, and said.
func TestRefusalsOfEnds(t *testing.T) {
	bind := func(change func(*transfer.BindOp)) transfer.Op {
		op := &transfer.BindOp{Kind: transfer.BindSend, Name: "pipe", Token: token, Capacity: 1 << 20}
		change(op)
		return op
	}
	put := func(change func(*transfer.PutOp)) transfer.Op {
		op := &transfer.PutOp{Target: 5, Form: transfer.MatchNext, Bytes: 9, Meta: []byte("meta"), Blocks: []layout.BlockList{{NTokens: 9, IDs: []uint32{4, 5}}}}
		change(op)
		return op
	}
	get := func(change func(*transfer.GetOp)) transfer.Op {
		op := &transfer.GetOp{Target: 6, Match: transfer.MatchNext, Room: 9, Seq: 12, Timeout: 1e9, Blocks: []layout.BlockList{{NTokens: 9, IDs: []uint32{1, 2}}}}
		change(op)
		return op
	}
	asBind, asPut, asGet := bind(func(*transfer.BindOp) {}), put(func(*transfer.PutOp) {}), get(func(*transfer.GetOp) {})
	byKey := get(func(o *transfer.GetOp) { o.Match, o.Seq, o.Key = transfer.MatchKey, 0, []byte("key") })
	byTokens := put(func(o *transfer.PutOp) { o.Form, o.Tokens = transfer.MatchPrefix, make([]uint32, 3) })
	set := func(at int) func([]byte) []byte { return func(r []byte) []byte { r[at] = 1; return r } }
	cut := func(n int) func([]byte) []byte { return func(r []byte) []byte { return r[:n] } }
	for _, r := range []struct {
		op     transfer.Op
		change func(rec []byte) []byte
		says   string
	}{
		{bind(func(o *transfer.BindOp) { o.Kind = 0 }), nil, "kind is 0"},
		{bind(func(o *transfer.BindOp) { o.Kind, o.Capacity = 5, 0 }), nil, "kind is 5"},
		{bind(func(o *transfer.BindOp) { o.Capacity = 0 }), nil, "capacity is 0"},
		{bind(func(o *transfer.BindOp) { o.Kind = transfer.BindRecv }), nil, "capacity is 1048576 and linger 0 ns: those are the other end's"},
		{bind(func(o *transfer.BindOp) { o.Kind, o.Capacity, o.Linger = transfer.BindSelect, 0, 1 }), nil, "capacity is 0 and linger 1 ns: those are the other end's"},
		{bind(func(o *transfer.BindOp) { o.Linger = transfer.Time(30*24*time.Hour) + 1 }), nil, "linger is 2592000000000001 ns, the limit is"},
		{bind(func(o *transfer.BindOp) { o.Linger = -1 }), nil, "linger is 18446744073709551615 ns, the limit is"},
		{bind(func(o *transfer.BindOp) { o.Kind, o.Peer = transfer.BindOwn, "b" }), nil, "peer_len is 1: a sender's or owner's end"},
		{bind(func(o *transfer.BindOp) { o.Kind, o.Capacity, o.Peer = transfer.BindRecv, 0, strings.Repeat("p", 256) }), nil, "peer_len is 256"},
		{bind(func(o *transfer.BindOp) { o.Kind, o.Capacity, o.Peer = transfer.BindRecv, 0, "\x1b" }), nil, "peer: "},
		{bind(func(o *transfer.BindOp) { o.Name = "" }), nil, "name_len is 0"},
		{bind(func(o *transfer.BindOp) { o.Name = strings.Repeat("n", 257) }), nil, "name_len is 257"},
		{bind(func(o *transfer.BindOp) { o.Name = "\x1b" }), nil, "name: "},
		{bind(func(o *transfer.BindOp) { o.Token = token[:15] }), nil, "token_len is 15"},
		{bind(func(o *transfer.BindOp) { o.Token = make([]byte, 33) }), nil, "token_len is 33"},
		{asBind, set(4), "flags or reserved"},
		{asBind, set(30), "flags or reserved"},
		{asBind, set(ring.RecBindSize - 1), "flags or reserved"},
		{asBind, cut(ring.RecBindSize - 1), "record of 47 bytes"},
		{asBind, cut(ring.RecBindSize + 19), "name, token and peer have 20 bytes, the record has 19 left"},
		{asBind, set(ring.RecBindSize + 20), "padding that is not zero"},
		{asBind, func(r []byte) []byte { return append(r, make([]byte, 8)...) }, "8 bytes too many"},

		{put(func(o *transfer.PutOp) { o.Form = 0 }), nil, "form is 0"},
		{put(func(o *transfer.PutOp) { o.Form, o.Tokens = transfer.MatchExact, []uint32{1} }), nil, "form is 4"},
		{put(func(o *transfer.PutOp) { o.Form = transfer.MatchItem }), nil, "form is 6"},
		{put(func(o *transfer.PutOp) { o.Meta = make([]byte, ring.MaxMeta+1) }), nil, "meta_len is 721"},
		{put(func(o *transfer.PutOp) { o.Key = []byte("k") }), nil, "key_len is 1: must be 1 to 256 for key (5), 0 for others"},
		{put(func(o *transfer.PutOp) { o.Form = transfer.MatchKey }), nil, "key_len is 0"},
		{put(func(o *transfer.PutOp) { o.Form, o.Key = transfer.MatchKey, make([]byte, 257) }), nil, "key_len is 257"},
		{put(func(o *transfer.PutOp) { o.Tokens = []uint32{1} }), nil, "ntokens is 1: must be"},
		{put(func(o *transfer.PutOp) { o.Form = transfer.MatchPrefix }), nil, "ntokens is 0"},
		{put(func(o *transfer.PutOp) { o.Form, o.Tokens = transfer.MatchPrefix, make([]uint32, ring.MaxTokens+1) }), nil, "ntokens is 262145"},
		{put(func(o *transfer.PutOp) { o.Bytes = 0 }), nil, "ngroups is 1 and bytes 0"},
		{put(func(o *transfer.PutOp) { o.Blocks = nil }), nil, "ngroups is 0 and bytes 9"},
		{put(func(o *transfer.PutOp) { o.Blocks = append(o.Blocks, layout.BlockList{Group: 1}) }), nil, "ngroups is 2 and bytes 9"},
		{put(func(o *transfer.PutOp) { o.Bytes = 8 }), nil, "covers tokens 0 to 9: must be 0 to bytes = 8"},
		{put(func(o *transfer.PutOp) { o.Blocks[0].FirstToken = 1 }), nil, "covers tokens 1 to 10"},
		{asPut, set(4), "flags or reserved"},
		{asPut, set(ring.RecPutSize - 1), "flags or reserved"},
		{asPut, cut(ring.RecPutSize - 1), "record of 47 bytes"},
		{asPut, cut(ring.RecPutSize + 3), "meta and key have 4 bytes, the record has 3 left"},
		{asPut, set(ring.RecPutSize + 4), "padding"},
		{byTokens, cut(ring.RecPutSize + 8 + 11), "3 tokens have 12 bytes, the record has 11 left"},
		{byTokens, set(ring.RecPutSize + 8 + 12), "padding"},

		{get(func(o *transfer.GetOp) { o.Match = 0 }), nil, "match is 0"},
		{get(func(o *transfer.GetOp) { o.Match = transfer.MatchDecline + 1 }), nil, "match is 8"},
		{get(func(o *transfer.GetOp) { o.Match = transfer.MatchAny }), nil, "seq is 12: match 2 has none"},
		{get(func(o *transfer.GetOp) { o.Match = transfer.MatchDecline }), nil, "room is 9"},
		{get(func(o *transfer.GetOp) { o.Key = []byte("k") }), nil, "key_len is 1: must be"},
		{get(func(o *transfer.GetOp) { o.Match, o.Seq = transfer.MatchExact, 0 }), nil, "ntokens is 0"},
		{get(func(o *transfer.GetOp) { o.Room = 0 }), nil, "ngroups is 1 and room 0"},
		{get(func(o *transfer.GetOp) { o.Room = 10 }), nil, "covers tokens 0 to 9: must be 0 to room = 10"},
		{asGet, set(4), "flags or reserved"},
		{asGet, set(ring.RecGetSize - 1), "flags or reserved"},
		{asGet, cut(ring.RecGetSize - 1), "record of 63 bytes"},
		{byKey, cut(ring.RecGetSize + 2), "key has 3 bytes, the record has 2 left"},
		{byKey, set(ring.RecGetSize + 3), "padding"},
	} {
		e, rec := sessiontest.Encode(r.op)
		if r.change != nil {
			rec = r.change(rec)
		}
		op, err := session.Decode(&e, rec, 0)
		var refusal *session.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != transfer.Invalid || !strings.Contains(refusal.Text, r.says) {
			t.Errorf("%+v and %v, want a refusal that says %q", op, err, r.says)
		}
	}
}

// TestEndsAsLargeAsTheyMayBe: what is as long as its limit says is no more than that.
func TestEndsAsLargeAsTheyMayBe(t *testing.T) {
	for _, op := range []transfer.Op{
		&transfer.BindOp{Kind: transfer.BindOwn, Name: strings.Repeat("n", ring.MaxName), Token: make([]byte, 32), Capacity: 1, Linger: transfer.Time(30 * 24 * time.Hour)},
		&transfer.BindOp{Kind: transfer.BindSelect, Name: "n", Peer: strings.Repeat("p", 255)},
		&transfer.PutOp{Target: 5, Form: transfer.MatchKey, Meta: make([]byte, ring.MaxMeta), Key: make([]byte, 256)},
		&transfer.PutOp{Target: 5, Form: transfer.MatchPrefix, Tokens: make([]uint32, ring.MaxTokens)},
	} {
		e, rec := sessiontest.Encode(op)
		if _, err := session.Decode(&e, rec, 0); err != nil {
			t.Errorf("%T: %v", op, err)
		}
	}
}

// TestBlockIDsAreBoundedOverAllGroups: of the few bytes that stand for them no more come out than one operation may have.
func TestBlockIDsAreBoundedOverAllGroups(t *testing.T) {
	if _, err := session.DecodeBlocks(nil, layout.MaxGroups+1); err == nil || !strings.Contains(err.Error(), "ngroups is 65, the limit is 64") {
		t.Errorf("more groups than there can be: %v", err)
	}
	runs := func(group, n uint32) []byte {
		return ring.Append(ring.Append(nil, &ring.RecGroup{Group: group, Form: ring.FormRuns, Count: 1}), [2]uint32{0, n})
	}
	ids := func(group, n uint32) []byte {
		b := append(ring.Append(nil, &ring.RecGroup{Group: group, Form: ring.FormIDs, Count: n}), make([]byte, 4*n)...)
		return append(b, make([]byte, n%2*4)...)
	}
	for name, c := range map[string]struct {
		first, second func(group, n uint32) []byte
	}{"runs": {runs, runs}, "runs, ids": {runs, ids}, "ids, runs": {ids, runs}, "ids": {ids, ids}} {
		for _, over := range []uint32{0, 1} {
			lists, err := session.DecodeBlocks(append(c.first(0, layout.MaxIDs-3), c.second(1, 3+over)...), 2)
			if over == 0 && (err != nil || len(lists[0].IDs)+len(lists[1].IDs) != layout.MaxIDs) {
				t.Errorf("%s: as many as there may be: %d lists, %v", name, len(lists), err)
			}
			if over != 0 && (err == nil || !strings.Contains(err.Error(), "at least 1048577 block ids, the limit of one operation is 1048576")) {
				t.Errorf("%s: one more: %v", name, err)
			}
		}
	}
}
