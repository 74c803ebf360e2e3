package session

import (
	"errors"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestWhoCannotBeWatchedOpensNoSession: a session that ended as soon as it is opened would be in its own way when its client comes back.
func TestWhoCannotBeWatchedOpensNoSession(t *testing.T) {
	v, err := New(Config{Node: "n0", Epoch: 7, Events: func(transfer.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }()
	fd, err := sys.MemfdCreate("no process", 1, sys.MemfdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := v.newSession(nil, identity{pidfd: fd}, &ring.Hello{SQEntries: 1, CQEntries: 8, ArenaBytes: 1 << 16, LayerSlots: 1})
	if err == nil {
		s.discard()
	}
	if !errors.Is(err, sys.ErrUnpolled) || causeOf(err).Reason != transfer.Quota {
		t.Errorf("whose end is not heard: %v", err)
	}
	if n := v.rings.used(); n != 0 {
		t.Errorf("%d bytes of rings are accounted for", n)
	}
}
