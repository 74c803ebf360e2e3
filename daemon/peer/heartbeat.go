package peer

import (
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// beat keeps the channel alive, measures its round trip, notices a silent peer, and closes a channel that nobody uses. Only
// durations on this node's own clock are compared.
func (c *channel) beat() {
	every := c.m.cfg.Heartbeat
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-c.stop:
			return
		}
		now := time.Now().UnixNano()
		if quiet := time.Duration(now - c.heard.Load()); quiet > 3*every {
			c.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("peer %q has been silent for %s (three heartbeats)", c.node, quiet.Round(time.Millisecond))}, true)
			return
		}
		if idle := time.Duration(now - c.worked.Load()); c.dialed && c.m.cfg.IdleClose > 0 && idle > c.m.cfg.IdleClose {
			c.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("idle for %s, closed; it opens again on first use", idle.Round(time.Second))}, true)
			return
		}
		c.prod()
	}
}
