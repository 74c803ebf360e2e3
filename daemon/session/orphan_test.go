package session_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/damper"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestNotDead: a client that says goodbye, or only closes its connection, has not died: it may still write its memory. What it
// said last about its progress is known whether anybody had looked or not.
func TestNotDead(t *testing.T) {
	n := start(t, nil)
	for name, end := range map[string]func(*sessiontest.Client){
		"goodbye": func(c *sessiontest.Client) { noErr(t, c.Close()) },
		"hang up": (*sessiontest.Client).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			c := n.dial(sessiontest.Options{Engine: name})
			noErr(t, c.Progress(5<<16|3))
			id := transfer.SessionID(c.Welcome.Session)
			end(c)
			closed := wait(n, func(e transfer.SessionClosed) bool { return e.Session == id })
			if closed.Died || closed.Progress != 5<<16|3 {
				t.Errorf("died: %v, progress %#x", closed.Died, closed.Progress)
			}
		})
	}
}

const left = 3 // blocks that an orphan leaves behind

// orphan opens a session with a region of 16 blocks of a page and lets it end as if offers of three of them outlived it.
func (n *node) orphan() (id transfer.SessionID, region layout.RegionID) {
	n.t.Helper()
	return n.orphanOf(sessiontest.Options{Engine: "mortal"})
}

// orphanOf does last things before the session ends. Nothing that it submits is handled.
func (n *node) orphanOf(o sessiontest.Options, last ...func(*sessiontest.Client)) (id transfer.SessionID, region layout.RegionID) {
	n.t.Helper()
	layouts := make(chan *layout.Layout, 1)
	n.on(func(ev transfer.Event) bool {
		switch ev := ev.(type) {
		case transfer.LayoutSet:
			layouts <- ev.Layout
		case transfer.SessionClosed:
			n.SessionOrphaned(transfer.SessionOrphaned{Session: ev.Session, Layout: <-layouts, Keep: [][]layout.BlockList{
				{{NTokens: 2, IDs: []uint32{1, 2}}}, {{NTokens: 2, IDs: []uint32{9, layout.NoBlock}}},
			}})
			return true
		case transfer.Submit:
			return true
		}
		return false
	})
	c := n.dial(o)
	region, mem, err := c.Alloc(16 * 4096)
	noErr(n.t, err)
	noErr(n.t, c.SetLayout([]layout.View{{
		Region: region, NumBlocks: 16, BlockStride: 4096, TokenStride: 4096, HeadStride: 4096, ContentBytes: 4096,
		Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, nil, 0))
	for i := range mem {
		mem[i] = byte(i>>12) + 1
	}
	_, _ = c.Request(ring.CtlPing, nil) // the layout was reported before it is answered
	for _, do := range last {
		do(c)
	}
	c.Kill()
	id = transfer.SessionID(c.Welcome.Session)
	n.empty()
	n.on(nil)
	return id, region
}

// TestLeftBehind: of a session that offers outlive, all ends but the pages under their blocks, until nobody takes them any more.
func TestLeftBehind(t *testing.T) {
	n := start(t, nil)
	id, region := n.orphan()
	if n.Orphaned() != left*4096 || n.Pinned() != left*4096 {
		t.Errorf("%d bytes are left behind, %d registered; must be %d", n.Orphaned(), n.Pinned(), left*4096)
	}
	for block := range uint64(16) {
		b, ok := n.Resolve(id, plan.Run{Region: region, Off: block * 4096, Len: 4096})
		want := byte(0)
		if block == 1 || block == 2 || block == 9 {
			want = byte(block) + 1
		}
		if !ok || !bytes.Equal(b, bytes.Repeat([]byte{want}, 4096)) {
			t.Errorf("block %d: there %v, or not what it was (%d)", block, ok, want)
		}
	}
	if u := n.Usage(); u.Sessions != 0 {
		t.Errorf("%d sessions count", u.Sessions)
	}
	n.dial(sessiontest.Options{Engine: "mortal"}) // the rank is free

	n.SessionDrained(id)
	eventually(t, func() bool { return n.Orphaned() == 0 && n.Pinned() == 0 && !n.Has(id) }, "%d bytes are left behind", n.Orphaned)
}

// TestWhoIsGoneIsToldNothing: of a session that has left only memory behind the rings are gone. Another session's may lie there, so nothing
// may be written.
func TestWhoIsGoneIsToldNothing(t *testing.T) {
	n := start(t, nil)
	id, _ := n.orphan()
	c := n.dial(sessiontest.Options{Engine: "heir"})
	n.Complete(transfer.Complete{Session: id, UserData: 7, Status: transfer.Done})
	n.Ring()
	n.LayerReady(transfer.LayerReady{Session: id, UserData: 7, Ready: 1})
	n.Granted(transfer.Granted{Session: id, Slot: 1, UserData: 7})
	n.WatchProgress(transfer.WatchProgress{Session: id, Value: 1})
	if done, err := c.Poll(); done != nil || err != nil {
		t.Errorf("completed: %+v, %v", done, err)
	}
	for slot := range uint32(2) {
		if user, _ := c.Rings.Layer(slot); user != 0 {
			t.Errorf("slot %d is of the take %d", slot, user)
		}
	}
	if v := c.Rings.WaitedFor(); v != 0 {
		t.Errorf("progress %d is waited for", v)
	}
}

// TestLeftBehindIsSmall: sessions that ended count against no limit of sessions, and what they left may stay for minutes. So nothing is kept of
// them but that: not the daemon's own part of their rings, nor what they had submitted, nor a layout that they never completed.
func TestLeftBehindIsSmall(t *testing.T) {
	n := start(t, nil)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const sessions, each, items, views = 20, 256 << 10, 4000, 500
	piece := ring.Append(nil, &ring.LayoutMsg{NViews: views, TotalViews: layout.MaxViews})
	for range views {
		piece = ring.Append(piece, &ring.View{})
	}
	before := heap()
	for i := range sessions {
		n.orphanOf(sessiontest.Options{Engine: fmt.Sprint("mortal", i), SQ: 1 << 12, CQ: 1 << 16, Records: 1 << 18}, func(c *sessiontest.Client) {
			n.publishes(c, 1, items, &transfer.PutOp{Target: 1, Form: transfer.MatchNext})
			for range layout.MaxViews / views {
				_, err := c.Request(ring.CtlLayout, piece)
				noErr(t, err)
			}
		})
		n.mu.Lock()
		n.events = nil // the test's own
		n.mu.Unlock()
	}
	if after := heap(); after > before+sessions*each {
		t.Errorf("%d sessions that are over keep %d bytes, want less than %d each", sessions, after-before, each)
	}
}

// TestManyLeftBehind: sessions come and go at the same cost however many others left something behind: anybody can make those many.
func TestManyLeftBehind(t *testing.T) {
	n := start(t, nil)
	come := func(times int) (bytes uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			c, err := sessiontest.Dial(n.path, sessiontest.Options{Engine: "e", Role: transfer.Endpoint, SQ: 8, CQ: 8, Records: 1 << 16, Layers: 1})
			noErr(t, err)
			noErr(t, c.Close())
		}
		n.empty()
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(times)
	}
	few := come(50)
	n.on(func(ev transfer.Event) bool {
		closed, over := ev.(transfer.SessionClosed)
		if over {
			n.SessionOrphaned(transfer.SessionOrphaned{Session: closed.Session})
		}
		return over
	})
	come(1000)
	n.on(nil)
	if many := come(50); many > few*3/2 {
		t.Errorf("a session takes %d bytes while 1000 lie behind, %d while none does", many, few)
	}
}

// TestMemoryThatDoesNotGoBackDoesNotFillTheLog: a client can see to it that what is left of it cannot be given back, and then come and go in a
// loop.
func TestMemoryThatDoesNotGoBackDoesNotFillTheLog(t *testing.T) {
	var log lines
	n := start(t, func(c *session.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	layouts := make(chan *layout.Layout, 1)
	n.on(func(ev transfer.Event) bool {
		switch ev := ev.(type) {
		case transfer.LayoutSet:
			layouts <- ev.Layout
		case transfer.SessionClosed:
			n.SessionOrphaned(transfer.SessionOrphaned{Session: ev.Session, Layout: <-layouts, Keep: [][]layout.BlockList{{{NTokens: 1, IDs: []uint32{1}}}}})
			return true
		}
		return false
	})
	began := time.Now()
	const size = 4 * 4096
	for range 20 {
		c := n.dial(sessiontest.Options{Engine: "mortal"})
		fd, err := sys.MemfdCreate("sealed", size, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
		noErr(t, err)
		region, err := c.Register(fd, size)
		noErr(t, err)
		noErr(t, sys.AddSeals(fd, sys.SealFutureWrite)) // by which no page of it can be punched out
		noErr(t, sys.Close(fd))
		noErr(t, c.SetLayout([]layout.View{{
			Region: region, NumBlocks: 4, BlockStride: 4096, TokenStride: 4096, HeadStride: 4096, ContentBytes: 4096,
			Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
		}}, nil, 0))
		_, _ = c.Request(ring.CtlPing, nil) // the layout was reported before it is answered
		c.Kill()
		n.empty()
	}
	if told, most := strings.Count(log.String(), "could not be given back"), 1+int(time.Since(began)/damper.Gap); told < 1 || told > most {
		t.Errorf("of 20 sessions whose memory could not be given back the log has %d, want 1 to %d", told, most)
	}
}

// TestLeftBehindAtTheEnd: a server that closes gives all of it back; the leak gate looks.
func TestLeftBehindAtTheEnd(t *testing.T) {
	n := start(t, nil)
	n.orphan()
	noErr(t, n.Close())
	if n.Orphaned() != 0 || n.Pinned() != 0 {
		t.Errorf("%d bytes are left behind, %d registered", n.Orphaned(), n.Pinned())
	}
}
