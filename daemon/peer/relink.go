package peer

import (
	"context"
	"errors"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

// lostGrace is how long a lost link may be part of a channel that ends, which is news of another kind.
const lostGrace = 100 * time.Millisecond

var errLinkLost = errors.New("its connection ended while the channel lives")

// Redial opens a lost link again, with pauses in between, until it is up, the channel is over or ctx ends. Implements transport.LinkSource:
// it returns at once, and on the side that did not dial the channel it waits for the other to dial.
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
		c.warn("data link lost", l.Index, errLinkLost)
		if c.dialed {
			c.tryLink(ctx, l.Index)
		}
	})
}

// reopen opens a link in the background.
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

// tryLink dials until the link is up or it is no use any more.
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

// pause waits about d; false when the channel or ctx ended meanwhile.
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
