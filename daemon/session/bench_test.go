package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// quiet is a server whose driver answers submissions on the spot and remembers nothing.
func quiet(b *testing.B, change func(*session.Config)) (*node, *sessiontest.Client) {
	var n *node
	n = start(b, func(c *session.Config) {
		slow := c.Events
		c.Events = func(ev transfer.Event) {
			switch ev := ev.(type) {
			case transfer.CreditsReturned:
			case transfer.Submit:
				panic("queued, not reported")
			default:
				slow(ev)
			}
		}
		var last transfer.Submit
		c.Queue = func(ev transfer.Event) {
			if s, ok := ev.(transfer.Submit); ok {
				last = s
			}
		}
		c.Flush = func() {
			if last.Session != 0 {
				n.Complete(transfer.Complete{Session: last.Session, UserData: last.UserData, Status: transfer.Done})
				last = transfer.Submit{}
			}
		}
		change(c)
	})
	return n, n.dial(sessiontest.Options{})
}

// BenchmarkComplete is what a completion costs the driver when its client is awake.
func BenchmarkComplete(b *testing.B) {
	n, c := quiet(b, func(*session.Config) {})
	id := transfer.SessionID(c.Welcome.Session)
	run := []layout.Run{{First: 7, Count: 1}}
	for name, done := range map[string]transfer.Complete{
		"done":   {Session: id, UserData: 1, Status: transfer.Done},
		"failed": {Session: id, UserData: 1, Status: transfer.Failed, Reason: transfer.PeerGone, Failed: run, Text: "node n1 cannot be reached"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.Complete(done)
				c.Rings.Next()
			}
		})
	}
}

// BenchmarkRoundTrip is one small operation from submission to completion, client and daemon in one process, with what the client
// does in Go.
func BenchmarkRoundTrip(b *testing.B) {
	for _, mode := range []string{"event", "busy"} {
		b.Run(mode, func(b *testing.B) {
			_, c := quiet(b, func(c *session.Config) { c.PollMode = mode })
			e, rec := sessiontest.Encode(&transfer.WatchOp{Key: []byte("key"), Token: token, Timeout: 1})
			b.ReportAllocs()
			for b.Loop() {
				e.UserData++
				if err := c.SubmitEntry(e, rec); err != nil {
					b.Fatal(err)
				}
				for ok := false; !ok; {
					if mode == "busy" {
						_, _, ok = c.Rings.Next()
						continue
					}
					done, err := c.Wait()
					if err != nil {
						b.Fatal(err)
					}
					ok = done != nil
				}
			}
		})
	}
}

// BenchmarkNop is the session's own part of that.
func BenchmarkNop(b *testing.B) {
	_, c := quiet(b, func(*session.Config) {})
	e := ring.SQE{Op: ring.OpNop}
	for b.Loop() {
		e.UserData++
		if err := c.SubmitEntry(e, nil); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
