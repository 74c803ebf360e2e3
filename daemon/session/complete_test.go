package session_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestResults: failed runs and texts arrive whole, or cut as the header says.
func TestResults(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{CQ: 8})
	id := transfer.SessionID(c.Welcome.Session)
	runs := func(count, groups int) (all []layout.Run) {
		for i := range count {
			all = append(all, layout.Run{Group: uint32(i % groups), First: uint32(2 * i), Count: 1})
		}
		return all
	}
	for i, r := range []struct {
		failed []layout.Run
		text   string
		cut    bool
	}{
		{nil, "", false},
		{nil, "key \"k\" is not known", false},
		{runs(3, 2), "", false},
		{runs(1024, 1), strings.Repeat("x", 300), false},
		{runs(1025, 64), "many", true},
	} {
		n.Complete(transfer.Complete{Session: id, UserData: uint64(i), Tag: 4, Op: 9, Bytes: 1 << 40, Status: transfer.Failed, Reason: transfer.PeerGone, More: i == 1,
			Failed: r.failed, Text: r.text})
		got, err := c.Wait()
		noErr(t, err)
		if got.UserData != uint64(i) || got.Tag != 4 || got.OpID != 9 || got.Bytes != 1<<40 || got.Status != 2 || got.Reason != 10 || got.Text != r.text {
			t.Errorf("completion %d: %+v", i, got)
		}
		if foreign := got.Flags&ring.FlagForeign != 0; foreign != (i == 0) || got.More() != (i == 1) {
			t.Errorf("completion %d has flags %d", i, got.Flags)
		}
		if r.cut {
			if len(got.Failed) != 64 || got.Failed[5] != (layout.Run{Group: 5, Count: ^uint32(0)}) {
				t.Errorf("cut to %v", got.Failed)
			}
		} else if fmt.Sprint(got.Failed) != fmt.Sprint(r.failed) {
			t.Errorf("%d failed runs, want %d: %.100v", len(got.Failed), len(r.failed), got.Failed)
		}
	}
	n.Complete(transfer.Complete{Session: id + 1, UserData: 1}) // nobody
}

// TestTextsArePlain: a text is printable UTF-8, also where another node has something else to say: it cannot command the terminal where
// an engine shows it, nor write further lines into its log. What this daemon has several lines for, as for a node with several addresses, reads
// as one.
func TestTextsArePlain(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	id := transfer.SessionID(c.Welcome.Session)
	const said, plain = "node \"b\": no\x00thing\xff: \u00e9\x1b[31m\nlevel=ERROR", "node \"b\": no?thing?: \u00e9?[31m; level=ERROR"
	n.Complete(transfer.Complete{Session: id, UserData: 1, Status: transfer.Failed, Reason: transfer.PeerGone, Text: said})
	if got, err := c.Wait(); err != nil || got.Text != plain {
		t.Errorf("a completion says %q (%v), want %q", got.Text, err, plain)
	}
	n.EndSession(transfer.EndSession{Session: id, Cause: transfer.Cause{Reason: transfer.Closed, Text: said}})
	if cause, err := c.Bye(); err != nil || cause.Text != plain {
		t.Errorf("BYE says %q (%v), want %q", cause.Text, err, plain)
	}
}

// TestGot: what a GET brought, or had no room for, arrives as it is. The largest have room however many lie uncollected.
func TestGot(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{CQ: 8})
	want := &transfer.Got{Item: 1 << 40, Bytes: 2 << 40, Capacity: 3 << 40, Matched: 1 << 18, Meta: bytes.Repeat([]byte("m"), ring.MaxMeta)}
	const all = 16
	for i := range uint64(all) {
		n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: i + 1, Status: transfer.Done, Got: want, Short: i%2 == 1})
	}
	for i := range uint64(all) {
		done, err := c.Wait()
		noErr(t, err)
		if done.UserData != i+1 || !reflect.DeepEqual(done.Got, want) || (done.Flags&ring.FlagShort != 0) != (i%2 == 1) {
			t.Errorf("completion %d with flags %d: %.200v", done.UserData, done.Flags, done.Got)
		}
	}
}

// TestInflight: an operation counts until it is released.
func TestInflight(t *testing.T) {
	n := start(t, nil)
	n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s })
	c := n.dial(sessiontest.Options{CQ: 16})
	if c.Welcome.MaxInflight != 5 {
		t.Fatalf("max_inflight is %d, want a third of cq_entries", c.Welcome.MaxInflight)
	}
	id := transfer.SessionID(c.Welcome.Session)
	op := &transfer.DropOp{Key: []byte("k"), Token: token, Timeout: 1}
	for range 5 {
		_, err := c.Submit(op)
		noErr(t, err)
	}
	refused := func() bool {
		t.Helper()
		ud, err := c.Submit(op)
		noErr(t, err)
		done, _, err := c.WaitFor(ud)
		noErr(t, err)
		return done.Reason == uint16(transfer.Quota) && strings.Contains(done.Text, "the limit is 5 (limits.inflight, at most a third of cq_entries = 16)")
	}
	if !refused() {
		t.Error("a sixth operation is accepted")
	}
	_, err := c.Submit(&transfer.SealOp{Target: 1})
	noErr(t, err)
	n.Complete(transfer.Complete{Session: id, UserData: 1, Status: transfer.Failed, More: true})
	n.Complete(transfer.Complete{Session: id, UserData: 1, Status: transfer.Quarantined})
	if !refused() {
		t.Error("a quarantined operation does not count")
	}
	n.Complete(transfer.Complete{Session: id, UserData: 1, Status: transfer.Released})
	_, err = c.Submit(op) // what acts on another one does not count
	noErr(t, err)
	wait(n, func(s transfer.Submit) bool { return s.UserData == 9 })
}
