package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestReload: what can change does, what cannot is named, and a bad file changes nothing.
func TestReload(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	next := n.cfg
	next.Limits.Sessions, next.Offers.OfferWait, next.Peers.Nodes = 1, config.Duration(time.Millisecond), map[string]string{"b": "127.0.0.1:1"}
	next.TCP.Streams, next.Advanced.Window = 3, 1<<20
	n.Reload(loaded(next))
	log := n.log.String()
	for _, want := range []string{`msg=reloaded changed="[peers.nodes offers.offer_wait limits.sessions]"`, `level=WARN msg="these settings need a restart" keys="[tcp.streams advanced.window]"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	e := n.join("only", 1)
	if _, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: "two", TPWorld: 1, PPWorld: 1}); sessiontest.Reason(err) != transfer.Quota || !strings.Contains(err.Error(), "limits.sessions = 1") {
		t.Errorf("a second session: %v", err)
	}
	c := e.do(&transfer.TakeOp{Key: []byte("k"), Token: token(), TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9, Blocks: e.all()})
	if c.Reason != uint16(transfer.NotFound) {
		t.Errorf("a take without an offer, offer_wait 1ms: %+v", c.Cause())
	}
	if n.cfg.TCP.Streams == 3 || n.cfg.Advanced.Window == 1<<20 {
		t.Errorf("settings that need a restart have changed: %+v", n.cfg)
	}

	n.Reload(func() (config.Config, error) { return config.Config{}, errors.New("line 1: unknown key") })
	if n.cfg.Limits.Sessions != 1 || !strings.Contains(n.log.String(), "the configuration stays as it was") {
		t.Errorf("after a bad file: %+v", n.cfg.Limits)
	}
}
