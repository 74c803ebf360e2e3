package peer

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// maxLost bounds the nodes whose last channel is remembered.
const maxLost = 4096

// install makes c the node's channel, unless another one stays. A node that has restarted, or knows that its old channel
// is over, always gets the new one.
func (m *Manager) install(c *channel, lostEpoch uint64) (err error) {
	defer func() {
		if err != nil {
			c.cancel() // nobody will close this channel
		}
	}()
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return fmt.Errorf("daemon of node %q is shutting down", m.cfg.Node)
	}
	old := m.channels[c.node]
	if old != nil && old.incarnation == c.incarnation && old.epoch != lostEpoch && m.keeps(old, c) {
		m.mu.Unlock()
		old.prod()
		return &duplicateError{node: c.node, by: m.cfg.Node}
	}
	m.channels[c.node] = c
	other := m.meet(c)
	m.stats.Opened++
	if m.lost[c.node] != 0 || old != nil && old.isUp() {
		m.stats.Reconnects++
	}
	if old != nil {
		m.remember(old) // its links may still be on their way
	}
	m.mu.Unlock()
	m.warnOfNamesake(c, other)
	if old != nil {
		old.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("node %q opened a new channel", c.node)}, false)
	}
	return nil
}

// keeps says whether old stays although c, a channel of the same two daemons, is there. Of two channels opened at the
// same time, the one dialed by the node whose name sorts first stays, if both were accepted before either side heard of
// that. A channel that this node dialed stays in any case when the other side's Hello comes: that side said it before it
// answered the Hello of old, and so has old too, perhaps with takes under way. With certificates a node knows whom it has
// dialed and does not dial twice. When insecure, it finds out too late, so of two that one node dialed the one that is
// up stays.
func (m *Manager) keeps(old, c *channel) bool {
	if old.dialed == c.dialed {
		return m.cfg.Insecure && old.isUp()
	}
	return old.dialed || m.cfg.Node > c.node
}

// uninstall forgets c, which ended because of cause, if it is still the node's channel.
func (m *Manager) uninstall(c *channel, cause transfer.Cause) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.channels[c.node] != c {
		return
	}
	delete(m.channels, c.node)
	m.remember(c)
	m.outlived(c, cause)
}

// remember keeps the epoch of a channel that is over. The caller holds mu.
func (m *Manager) remember(c *channel) {
	if _, again := m.lost[c.node]; !again && len(m.lost) >= maxLost {
		for node := range m.lost { // any one: at worst its peer has to wait for missing heartbeats
			delete(m.lost, node)
			break
		}
	}
	m.lost[c.node] = c.epoch
}

// lostEpoch returns the epoch of the last channel with the node, by whichever name is known; 0 if there was none.
func (m *Manager) lostEpoch(certified, wanted string) uint64 {
	if certified == "" {
		certified = wanted
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost[certified]
}

// byEpoch finds a channel that the peer dialed, by the epoch that this side drew for it. stale: it is over.
func (m *Manager) byEpoch(epoch uint64) (c *channel, stale bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.channels {
		if c.epoch == epoch && !c.dialed {
			return c, false
		}
	}
	for _, e := range m.lost {
		stale = stale || e == epoch
	}
	return nil, stale
}
