package transfer

// pace bounds how often a peer can have something repeated by asking again: a grant names up to a million blocks, and
// the question is a few bytes.
type pace struct {
	said  bool
	at    Time
	epoch uint64 // of the channel
}

// may says whether it is repeated now: the first time, and then no sooner than half a Resend after the last time.
// Nobody who has lost something asks again sooner. A new channel begins anew.
func (c *pace) may(m *Machine, p *peer) bool {
	if c.said && c.epoch == p.epoch && m.now-c.at < m.cfg.Resend/2 {
		return false
	}
	c.said, c.at, c.epoch = true, m.now, p.epoch
	return true
}
