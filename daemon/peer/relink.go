package peer

import (
	"context"
	"errors"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

// lostGrace is how long a lost link may turn out to be part of a channel that ends, which is reported differently.
const lostGrace = 100 * time.Millisecond

var errLinkLost = errors.New("its connection ended while the channel lives")

// Redial opens a lost link again, with pauses in between, until it is up, the channel is over or ctx ends. It returns
// at once. On the side that did not dial the channel, the other side dials. It implements transport.LinkSource.
func (m *Manager) Redial(ctx context.Context, l *transport.Link) {
	c := m.channelOf(l.Peer)
	if c == nil || c.epoch != l.Epoch {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || !c.links.lost(l) {
		return
	}
	m.wg.Go(func() {
		if !c.pause(ctx, lostGrace) {
			return
		}
		if m.lossy.Due(c.node) { // it may open and be lost again for hours
			c.warn("data link lost", l.Index, errLinkLost)
		}
		if c.dialed {
			c.tryLink(ctx, l.Index)
		}
	})
}

// reopen opens a link in the background, after about wait.
func (c *channel) reopen(ctx context.Context, index int, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.m.wg.Go(func() {
			if c.pause(ctx, wait) {
				c.tryLink(ctx, index)
			}
		})
	}
}

// tryLink dials until the link is up, the channel is over or ctx ends.
func (c *channel) tryLink(ctx context.Context, index int) {
	for wait := firstWait; ; wait = min(2*wait, max(c.m.cfg.DialMax, firstWait)) {
		err := c.openLink(index)
		if err == nil {
			return
		}
		c.failed(index, err)
		if !c.pause(ctx, wait) {
			return
		}
	}
}

// pause waits about d. False: the channel or ctx ended meanwhile.
func (c *channel) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
	case <-ctx.Done():
	}
	return false
}
