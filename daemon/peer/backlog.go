package peer

import "time"

const (
	// maxBehind and maxBehindBytes bound what a channel brings until it is looked whether the machine has worked off what came before that.
	maxBehind      = 4096 // messages
	maxBehindBytes = 1 << 20
	// planned is how many messages one counts for of which a plan is made.
	planned = maxBehind / 16
)

// backlog keeps a channel's reader from running away from the machine: a peer that says more than this node works off is read no faster than
// that, and fills its own buffers instead of this node's memory and everybody's queue. At most twice the bounds wait. For the reader.
type backlog struct {
	messages, bytes int           // since the last mark
	passed          chan struct{} // closed when the last mark is worked off
}

// keepUp counts a message for the machine, and waits when too much lies before it; false: the channel is over.
func (c *channel) keepUp(f frame) bool {
	b := &c.backlog
	b.messages++
	switch f.kind {
	case kindTake, kindGrant, kindSeek:
		b.messages += planned - 1
	}
	b.bytes += len(f.body)
	if b.messages < maxBehind && b.bytes < maxBehindBytes {
		return true
	}
	b.messages, b.bytes = 0, 0
	c.workOff()
	if b.passed != nil && !c.catchUp(b.passed) {
		return false
	}
	passed := make(chan struct{})
	b.passed = passed
	c.m.cfg.After(func() { close(passed) })
	return c.letOut()
}

// letOut waits while much waits for the peer, lest it goes on to ask, and does not read what it is answered. A heartbeat at most: of two that have
// much to say to each other one has to begin to read.
func (c *channel) letOut() bool {
	if c.waiting() <= maxQueued {
		return true
	}
	c.behind.Store(true)
	defer c.behind.Store(false)
	t := time.NewTimer(c.m.cfg.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-c.taken:
			if c.waiting() > maxQueued {
				continue
			}
		case <-t.C:
		case <-c.ctx.Done():
			return false
		}
		c.heard.Store(c.m.clock())
		return true
	}
}

// catchUp waits. What the peer says meanwhile is not heard, which is not its fault.
func (c *channel) catchUp(passed <-chan struct{}) bool {
	select {
	case <-passed:
		return true
	default:
	}
	c.behind.Store(true)
	defer c.behind.Store(false)
	select {
	case <-passed:
		c.heard.Store(c.m.clock())
		return true
	case <-c.ctx.Done():
		return false
	}
}

// workOff has the machine run, perhaps here, which can take a while. Nor is what the peer says heard then.
func (c *channel) workOff() {
	c.running.Store(true)
	c.m.cfg.Flush()
	c.heard.Store(c.m.clock())
	c.running.Store(false)
}
