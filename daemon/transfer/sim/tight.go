package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// tighten lets each daemon keep little for its peers. So much is put off, and some of it ends for that reason.
func (c *Cluster) tighten() {
	r := &c.rng
	c.cfg.MaxParked = r.in(1, 4)
	c.cfg.MaxHeld = r.in(1500, 6000)
	c.cfg.MaxEnds = r.in(1, 4)
	if c.opts.Ragged {
		c.cfg.MaxTombstones = r.in(2, 10)
	}
}

// forRoom says whether a message puts something off, or ends it, because there is no room for it.
func forRoom(msg transfer.Msg) bool {
	switch msg := msg.(type) {
	case *transfer.MsgRefuse:
		return msg.Cause.Reason == transfer.Quota
	case *transfer.MsgSeekRefuse:
		return msg.Cause.Reason == transfer.Quota
	case *transfer.MsgAbort:
		return msg.Cause.Reason == transfer.Quota
	}
	return false
}
