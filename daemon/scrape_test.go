package daemon

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestGetsThatWaitAreNoTakes: a receiver that asks for items ahead takes nothing until there are some.
func TestGetsThatWaitAreNoTakes(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	end, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: "e", Role: transfer.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end.Kill)
	bind, err := end.Submit(&transfer.BindOp{Kind: transfer.BindRecv, Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := end.Submit(&transfer.GetOp{Target: bind, Match: transfer.MatchNext, Timeout: 60e9}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the get waits", func() bool {
		m, err := view{n.Daemon}.look(t.Context())
		return err == nil && m.Seeking == 1
	})
	s, err := view{n.Daemon}.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Takes != 0 || s.Transfers != 0 {
		t.Errorf("%d takes and %d transfers are shown, want none", s.Takes, s.Transfers)
	}
}
