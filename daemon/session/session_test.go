package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func view(r layout.RegionID) layout.View {
	return layout.View{Region: r, NumBlocks: 4, BlockStride: 4096, TokenStride: 256, HeadStride: 128, ContentBytes: 128, Kind: layout.Paged,
		BlockSize: 16, Heads: 2, TotalHeads: 2, Part: "kv"}
}

func TestLifeOfASession(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{Engine: "prefill-0", TPRank: 1, TPWorld: 2})
	opened := wait[transfer.SessionOpened](n, nil)
	if opened.Engine != "prefill-0" || opened.Rank != 1 || opened.TPWorld != 2 || opened.Instance == "" || opened.Credits != 4096 {
		t.Fatalf("opened: %+v", opened)
	}
	if got := transfer.SessionID(c.Welcome.Session); got != opened.Session {
		t.Fatalf("session %d, WELCOME says %d", opened.Session, got)
	}
	region, mem, err := c.Alloc(16384)
	noErr(t, err)
	copy(mem[8192:], "hello")
	b, ok := n.Resolve(opened.Session, plan.Run{Region: region, Off: 8192, Len: 5})
	if !ok || string(b) != "hello" {
		t.Fatalf("resolved %q %v", b, ok)
	}
	noErr(t, c.SetLayout([]layout.View{view(region)}, []layout.Field{{Key: "model", Value: "m"}}, 0))
	set := wait[transfer.LayoutSet](n, nil)
	if len(set.Layout.Views()) != 1 {
		t.Fatalf("layout %+v", set.Layout)
	}

	op := &transfer.OfferOp{Key: []byte("k"), Token: make([]byte, 16), Consumers: 1, Blocks: []layout.BlockList{{NTokens: 32, IDs: []uint32{1, 3}}}}
	ud, err := c.Submit(op)
	noErr(t, err)
	done, _, err := c.WaitFor(ud)
	noErr(t, err)
	if done.Status != uint16(transfer.Done) || done.Rank != 1 || done.Epoch != 7 {
		t.Fatalf("completion %+v", done)
	}
	noErr(t, c.Ping())
	noErr(t, c.Unregister(region, 0))
	if _, ok := n.Resolve(opened.Session, plan.Run{Region: region, Len: 1}); ok {
		t.Fatal("the region is still there after it was unregistered")
	}
	noErr(t, c.Close())
	closed := wait[transfer.SessionClosed](n, nil)
	if closed.Session != opened.Session || closed.Cause.Reason != transfer.Closed {
		t.Fatalf("closed: %+v", closed)
	}
	n.empty()
}
