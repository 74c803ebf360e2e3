package peer

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// kind is a frame's content of one kind.
func kind(epoch uint64, num protowire.Number, body []byte) []byte {
	w := writer{}
	w.uint(1, epoch)
	w.element(num, body)
	return w.b
}

// layoutFrame says blob under the digest of l.
func layoutFrame(epoch uint64, l *layout.Layout, blob []byte) []byte {
	digest := l.Digest()
	var w writer
	w.bytes(1, digest[:])
	w.bytes(2, blob)
	return rawFrame(kind(epoch, kindLayout, w.b))
}

// TestRunsAreSaidToWhoKnowsThem: a daemon of before, whose Hello does not say so, gets every id.
func TestRunsAreSaidToWhoKnowsThem(t *testing.T) {
	const n = 1000
	for _, knows := range []bool{false, true} {
		cl := newCluster(t)
		a := cl.node("a", nil)
		r := rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", func(h *peerpb.Hello) { h.Runs = knows })
		if !r.hello.Runs {
			t.Error("this side does not say that it knows them")
		}
		up := wait[transfer.PeerUp](a, nil)
		take := *samples()[1].(*transfer.MsgTake)
		take.Blocks = []layout.BlockList{{NTokens: n, IDs: layout.Adjacent(0, n)}}
		a.Send("b", up.Epoch, &take)
		f, err := r.in.next(maxFrame)
		for ; err == nil && f.kind != kindTake; f, err = r.in.next(maxFrame) {
		}
		if err != nil {
			t.Fatal(err)
		}
		if short := len(f.body) < n; short != knows {
			t.Errorf("knows %v: a take of %d adjacent ids has %d bytes", knows, n, len(f.body))
		}
		if got, err := decode(f.kind, f.body, nil); err != nil || len(got.(*transfer.MsgTake).Blocks[0].IDs) != n {
			t.Errorf("knows %v: %v", knows, err)
		}
	}
}

func TestAMalformedFrameClosesItsChannel(t *testing.T) {
	take := samples()[1]
	for _, c := range []struct {
		name  string
		frame func(epoch uint64) []byte // with its length
		says  string
	}{
		{"oversize", func(uint64) []byte { return []byte{1, 0, 0, 1} }, "a frame of 16777217 bytes, limit 16777216"},
		{"no protobuf", func(uint64) []byte { return rawFrame([]byte{0xff, 0xff, 0xff}) }, "field"},
		{"empty", func(uint64) []byte { return rawFrame(nil) }, "no kind"},
		{"no kind", func(e uint64) []byte { w := writer{}; w.uint(1, e); return rawFrame(w.b) }, "no kind"},
		{"unknown kind", func(e uint64) []byte { return rawFrame(kind(e, 99, nil)) }, "unknown kind 99"},
		{"two kinds", func(e uint64) []byte { return rawFrame(append(kind(e, kindParked, nil), kind(e, kindGo, nil)...)) }, "two kinds"},
		{"second hello", func(uint64) []byte { return must(appendHello(nil, &peerpb.Hello{Node: "b"})) }, "second hello"},
		{"cut field", func(e uint64) []byte { return rawFrame(kind(e, kindParked, []byte{0x08})) }, "parked, field 1"},
		{"wrong type", func(e uint64) []byte { return rawFrame(kind(e, kindParked, []byte{0x0a, 0})) }, "parked, field 1: wire type"},
		{"no key", func(e uint64) []byte { return rawFrame(kind(e, kindKey, nil)) }, "key without a key"},
		{"short token", func(e uint64) []byte {
			return must(appendMsg(nil, e, &transfer.MsgKey{Key: []byte("k"), Token: []byte("short")}, false))
		}, "token of 5 bytes, must be 16 to 32"},
		{"long key", func(e uint64) []byte { return must(appendMsg(nil, e, &transfer.MsgKey{Key: make([]byte, 257)}, false)) }, "key.key of 257 bytes, limit 256"},
		{"parts", func(e uint64) []byte {
			m := *take.(*transfer.MsgTake)
			m.Part = 2
			return must(appendMsg(nil, e, &m, false))
		}, "take.part 2 of 2"},
		{"status", func(e uint64) []byte {
			return must(appendMsg(nil, e, &transfer.MsgEnd{Status: transfer.Released}, false))
		}, "end.status 4"},
		{"refusal without a reason", func(e uint64) []byte { return must(appendMsg(nil, e, &transfer.MsgRefuse{Xfer: 1}, false)) }, "refuse.cause.reason 0, must be that of a failure"},
		{"abort without a reason", func(e uint64) []byte { return must(appendMsg(nil, e, &transfer.MsgAbort{Xfer: 1}, false)) }, "abort.cause.reason 0, must be"},
		{"seek refused without a reason", func(e uint64) []byte {
			return must(appendMsg(nil, e, &transfer.MsgSeekRefuse{Xfer: 1, Retry: 1}, false))
		}, "seek_refuse.cause.reason 0, must be"},
		{"item that cannot be", func(e uint64) []byte {
			return must(appendMsg(nil, e, &transfer.MsgFound{Xfer: 1, Bytes: 1 << 32}, false))
		}, "found.bytes 4294967296, limit 4294967295"},
		{"digest", func(e uint64) []byte { return rawFrame(kind(e, kindLayout, []byte{0x0a, 1, 7})) }, "digest of 1 bytes, want 32"},
		{"no layout", func(e uint64) []byte { return layoutFrame(e, introduction(8).Layout, []byte{1, 2, 3}) }, "layout.blob: layout: malformed at byte"},
		{"layout of another version", func(e uint64) []byte {
			l := introduction(8).Layout
			return layoutFrame(e, l, append([]byte{2}, l.Encode()[1:]...))
		}, "layout.blob: layout: version 2; this daemon reads version 1"},
		{"digest of another layout", func(e uint64) []byte {
			return layoutFrame(e, introduction(8).Layout, introduction(9).Layout.Encode())
		}, "layout.digest "},
		{"end", func(e uint64) []byte { return must(appendMsg(nil, e, &transfer.MsgNeedLayout{End: 7}, false)) }, "need_layout.end 7"},
		{"not UTF-8", func(e uint64) []byte { return rawFrame(kind(e, kindKey, []byte{0x1a, 1, 0xff})) }, "key.engine is not UTF-8"},
		{"ids", func(e uint64) []byte {
			return rawFrame(kind(e, kindGrant, []byte{0x3a, 4, 0x20, 3, 0x2a, 0}))
		}, "grant, group 0"},
		{"ids of a rank", func(e uint64) []byte {
			return rawFrame(kind(e, kindGrant, []byte{0x42, 6, 0x12, 4, 0x20, 3, 0x2a, 0}))
		}, "blocks of a rank, group 0"},
		{"a rank's blocks twice", func(e uint64) []byte {
			return rawFrame(kind(e, kindGrant, []byte{0x42, 2, 0x08, 1, 0x42, 2, 0x08, 1}))
		}, "has block lists of rank 1 twice"},
		{"run of two beginnings", func(e uint64) []byte {
			return rawFrame(kind(e, kindGrant, []byte{0x3a, 8, 0x20, 3, 0x2a, 2, 2, 2, 0x30, 1}))
		}, "grant, group 0"},
		{"run that costs memory", func(e uint64) []byte {
			return rawFrame(kind(e, kindGrant, []byte{0x3a, 9, 0x20, 0x81, 0x80, 0x20, 0x2a, 1, 0, 0x30, 1}))
		}, "a run of 524289 ids from 0"},
		{"run of holes", func(e uint64) []byte {
			return rawFrame(kind(e, kindGrant, []byte{0x3a, 7, 0x20, 3, 0x2a, 1, 1, 0x30, 1}))
		}, "a run of 3 ids from 4294967295"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newCluster(t)
			a := cl.node("a", nil)
			r := rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", nil)
			up := wait[transfer.PeerUp](a, nil)
			r.write(c.frame(up.Epoch))
			down := wait[transfer.PeerDown](a, nil)
			a.warns(c.says)
			a.warns("malformed frame, channel closed")
			text := r.closed()
			want := fmt.Sprintf("peer %q sent a malformed frame", "b")
			if down.Epoch != up.Epoch || down.Cause.Reason != transfer.PeerGone || len(text) < len(want) || text[:len(want)] != want {
				t.Errorf("%+v; the peer was told %q", down, text)
			}
			if _, st := a.Snapshot(); st.Malformed != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestMalformedFramesOverAndOver: a peer that comes back each time to send another one fills no log.
func TestMalformedFramesOverAndOver(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	const channels, said = 12, 8
	for range channels {
		r := rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", nil)
		up := wait[transfer.PeerUp](a, nil)
		r.write(rawFrame(kind(up.Epoch, kindGrant, []byte{0x3a, 4, 0x20, 3, 0x2a, 0})))
		wait[transfer.PeerDown](a, nil)
		r.closed()
	}
	if _, st := a.Snapshot(); st.Malformed != channels {
		t.Errorf("%d are counted, want %d", st.Malformed, channels)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := strings.Count(strings.Join(a.logged, "\n"), "malformed frame, channel closed"); n != said {
		t.Errorf("the log says it %d times, want %d", n, said)
	}
}

func TestFramesOfAnotherEpochAreDropped(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	r := rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", nil)
	epoch := r.hello.Epoch
	r.write(must(appendMsg(nil, epoch+2, &transfer.MsgParked{Xfer: 1}, false)))
	r.write(must(appendClose(nil, epoch+2, 1, "not yours")))
	r.write(rawFrame(kind(0, kindParked, []byte{0xff})))
	r.write(must(appendMsg(nil, epoch, &transfer.MsgParked{Xfer: 2}, false)))
	if m := wait[transfer.PeerMsg](a, nil).Msg.(*transfer.MsgParked); m.Xfer != 2 {
		t.Errorf("xfer %d", m.Xfer)
	}
	a.calm()
}

func TestTheFirstFrameIsASmallHello(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	b := cl.identity("b")
	for says, frame := range map[string][]byte{
		"kind 12":                             must(appendMsg(nil, 0, &transfer.MsgNeedLayout{}, false)),
		"a frame of 16385 bytes, limit 16384": {1, 0x40, 0, 0},
		"hello: ":                             rawFrame(kind(0, kindHello, []byte{0xff})),
		"oversized or unprintable":            must(appendHello(nil, &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b", Advertise: string(make([]byte, 256))})),
	} {
		r := rawDial(t, a.addr, b, alpnControl)
		r.write(frame)
		r.closed()
		a.warns(says)
	}
	if _, st := a.Snapshot(); st.Malformed != 4 || st.Opened != 0 {
		t.Errorf("%+v", st)
	}
}
