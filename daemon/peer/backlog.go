package peer

import "time"

const (
	// maxBehind and maxBehindBytes bound what a channel may bring before its reader checks that the machine has handled
	// what came before that.
	maxBehind      = 4096 // messages
	maxBehindBytes = 1 << 20
	// planned is how many messages a message counts for if a plan is made for it.
	planned = maxBehind / 16
)

// backlog keeps a channel's reader from running away from the machine. A peer that says more than this node can handle
// is read more slowly, and so fills its own buffers instead of this node's memory and the common queue. At most twice
// the bounds wait. For the reader.
type backlog struct {
	messages, bytes int           // since the last mark
	passed          chan struct{} // closed when everything before the last mark is handled
}

// keepUp counts a message for the machine, and waits when too much is ahead of it. False: the channel is over.
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

// letOut waits while much waits for the peer, so that a peer cannot go on asking without reading the answers. It waits
// one heartbeat at most: of two nodes that have much to say to each other, one must begin to read.
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

// catchUp waits for passed. The peer is not heard meanwhile, which is not its fault. False: the channel is over.
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

// workOff makes the machine run, perhaps on this goroutine, which can take a while. The peer is not heard then either.
func (c *channel) workOff() {
	c.running.Store(true)
	c.m.cfg.Flush()
	c.heard.Store(c.m.clock())
	c.running.Store(false)
}
