package session

import (
	"errors"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// TestWhoComesAgainAwaitsItsOwnEnd: a scheduler of before that gave up and comes again is who it was, also when it had its place only after it
// was judged who comes.
func TestWhoComesAgainAwaitsItsOwnEnd(t *testing.T) {
	var last transfer.SessionOpened
	v := &Server{engines: newRegistry(), state: newState("")}
	v.sessions.Store(&table{})
	v.cfg = Config{Node: "n", Epoch: 2, Events: func(ev transfer.Event) { last = ev.(transfer.SessionOpened) }}.withDefaults()
	opens := func() *session {
		return &session{
			srv: v, who: identity{Engine: "e", Instance: "i", UID: 7, Role: transfer.Scheduler, Rank: transfer.NoRank}, secret: newSecret(),
			ending: make(chan struct{}), left: make(chan struct{}),
		}
	}
	old := opens()
	old.id = 1<<32 | 1
	v.state.put(old, roster.Return{}, nil)
	v.state.roster.Recall(v.state.roster.File())

	h := ring.Hello{Session: uint64(old.id), Secret: old.secret}
	first, again := opens(), opens()
	if err := v.admit(first, &h); err != nil || !last.Resumed || last.User != 7 {
		t.Fatalf("it comes back as %+v, %v", last, err)
	}
	close(first.ending)
	var by *occupied
	if err := v.admit(again, &h); !errors.As(err, &by) || by.by != first {
		t.Errorf("it comes again before the end of its other connection: %v", err)
	}
	first.cause.Reason = transfer.PeerGone
	v.leave(first)
	if err := v.admit(again, &h); err != nil || !last.Resumed {
		t.Errorf("it comes again as %+v, %v", last, err)
	}
}
