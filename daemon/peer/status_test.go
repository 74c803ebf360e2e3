package peer

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAChannelIsShownAsUpOnceItIs: nothing can be sent before its links are there, or have had their time.
func TestAChannelIsShownAsUpOnceItIs(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", func(c *Config) { c.Heartbeat = time.Hour })
	b := cl.identity("b")
	state := func(want string) {
		t.Helper()
		if all, _ := a.Snapshot(); len(all) != 1 || all[0].Node != "b" || all[0].State != want {
			t.Errorf("peers %+v, want b %s", all, want)
		}
	}
	r := rawDial(t, a.addr, b, alpnControl).meet("b", func(h *peerpb.Hello) { h.Streams = 1 })
	state("dialing")
	if !rawDial(t, a.addr, b, alpnData).link(linkHello{epoch: r.hello.Epoch, serial: 1}, r.hello.LinkSecret) {
		t.Fatal("the link is refused")
	}
	wait[transfer.PeerUp](a, nil)
	state("up")
}
