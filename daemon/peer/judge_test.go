package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAChannelEndsWithItsPeersCA: whoever's CA is taken out is out, however busy its channel is; and hears why.
func TestAChannelEndsWithItsPeersCA(t *testing.T) {
	cl, next := newCluster(t), newCluster(t)
	mine := t.TempDir()
	issue := func(ca string) {
		t.Helper()
		pem, err := os.ReadFile(filepath.Join(ca, pki.CAFile))
		if err == nil {
			err = os.WriteFile(filepath.Join(mine, pki.CAFile), pem, 0o644)
		}
		if err == nil {
			err = pki.IssueNode(ca, mine, "a", nil, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	issue(cl.dir)
	// A machine that stands still for three of them would end the channel for another reason.
	beats := func(c *Config) { c.Heartbeat = 2 * time.Second; c.IdleClose = 0 }
	a := cl.node("a", func(c *Config) {
		beats(c)
		cert, key := pki.NodeFiles(mine, "a")
		id, err := pki.Open(filepath.Join(mine, pki.CAFile), cert, key, "a")
		if err != nil {
			t.Fatal(err)
		}
		c.Identity = id
	})
	b := cl.node("b", beats)
	b.knows(a)
	epoch := met(b, a)

	issue(next.dir)
	for _, n := range []*node{a, b} {
		down := wait(n, func(e transfer.PeerDown) bool { return e.Epoch == epoch })
		for _, want := range []string{`peer "b" is not trusted any more`, "unknown authority"} {
			if !strings.Contains(down.Cause.Text, want) {
				t.Errorf("%s: the channel went down for %q, want %q in it", n.cfg.Node, down.Cause.Text, want)
			}
		}
	}
}
