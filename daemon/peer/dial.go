package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

const (
	// dialTimeout bounds one attempt: connect, handshake, hello.
	dialTimeout = 5 * time.Second
	// lookUpTimeout bounds the lookup before it. A resolver gives each name server 5 s. With less than this, the second
	// name server would not be asked if the first is dead.
	lookUpTimeout = 12 * time.Second
	// maxDialing bounds the attempts under way that clients' hints ask for. Attempts at addresses that failed lately,
	// most of which are resting, have the same bound of their own. So a client that names many such keeps nobody from a
	// good address. Configured peers do not count.
	maxDialing = 128
)

// dial is an attempt under way. Later hints that lead to the same target join it.
type dial struct {
	hints []string
	again bool // the last attempt failed
}

// Dial makes sure that there is a channel to the peer that hint names. PeerUp or DialFailed follows. Attempts at an
// address that keeps failing are spread out with jitter, so a caller may ask again at once. A hint that leads to this
// very node is answered by a PeerUp with its own name.
func (m *Manager) Dial(hint string) {
	if c := m.channelOf(hint); c != nil && c.announce(hint) {
		return
	}
	t, refused := m.resolve(hint)
	if refused != nil {
		m.cfg.Events(transfer.DialFailed{Hint: hint, Final: true, Cause: refused.cause})
		return
	}
	if !m.begin(t, hint) {
		m.cfg.Events(transfer.DialFailed{Hint: hint, Cause: transfer.Cause{
			Reason: transfer.Quota, Text: fmt.Sprintf("peer %s: %d other addresses are being dialed, the limit", hint, maxDialing)}})
	}
}

// begin starts an attempt or joins one. False: too many are under way.
func (m *Manager) begin(t target, hint string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return true // nobody waits any more
	}
	if d := m.dialing[t]; d != nil {
		d.hints = append(d.hints, hint)
		return true
	}
	failed := func(p *backoff) bool { return p.problem != "" }
	d := &dial{hints: []string{hint}, again: slices.ContainsFunc(m.paces(t), failed)}
	if t.node == "" && m.hinted(d.again) >= maxDialing {
		return false
	}
	m.dialing[t] = d
	m.wg.Go(func() { m.attempt(d, t) })
	return true
}

// hinted counts the attempts under way that hints ask for: with again those at addresses that failed lately, else the
// others. The caller holds mu.
func (m *Manager) hinted(again bool) (n int) {
	for t, d := range m.dialing {
		if t.node == "" && d.again == again {
			n++
		}
	}
	return n
}

// attempt dials once, after the pause that earlier failures have earned. If the configuration has another address for
// the node by then, or none, the hints are dialed anew instead.
func (m *Manager) attempt(d *dial, t target) {
	if m.rest(t) {
		for _, h := range m.leave(d, t) {
			m.Dial(h)
		}
		return
	}
	c, fresh, err := m.connect(t)
	if fresh {
		c.awaitLinks(c.openLinks())
		c.start()
	}

	m.mu.Lock()
	delete(m.dialing, t)
	hints := d.hints
	switch {
	case fresh: // its end will say whether it lasted
	case err == nil || errors.Is(err, errSelf):
		m.answered(t)
	default:
		m.slower(t, err)
	}
	m.mu.Unlock()
	if errors.Is(err, errSelf) {
		m.cfg.Events(transfer.PeerUp{Node: m.cfg.Node, Epoch: 1, Hints: hints})
		return
	}
	if err != nil {
		var fin *finalError
		ev := transfer.DialFailed{Final: errors.As(err, &fin), Cause: asCause(err, fmt.Sprintf("peer %s at %s: ", hints[0], t.addr))}
		for _, ev.Hint = range hints {
			m.cfg.Events(ev)
		}
		return
	}
	for _, h := range hints {
		if !c.announce(h) && !m.announceOther(c, h) {
			m.cfg.Events(transfer.DialFailed{Hint: h, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("the channel to %q closed at once", c.node)}})
		}
	}
}

// leave ends an attempt before it dials, and returns the hints that asked for it.
func (m *Manager) leave(d *dial, t target) (hints []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.dialing, t)
	return d.hints
}

// announceOther announces the channel that replaced c at once: the one that its node had opened at the same time.
func (m *Manager) announceOther(c *channel, hint string) bool {
	now := m.channelOf(c.node)
	return now != nil && now != c && now.announce(hint)
}

// connect opens a connection and agrees on a channel, or finds an existing one. If the other side refuses because it
// has dialed too, connect returns the channel that the other side opened.
func (m *Manager) connect(t target) (c *channel, fresh bool, err error) {
	if won := m.channelOf(t.node); won != nil { // it came while this attempt rested
		return won, false, nil
	}
	looking, looked := context.WithTimeout(m.ctx, lookUpTimeout)
	defer looked()
	addrs, err := m.addresses(looking, t)
	if err != nil {
		return nil, false, err
	}
	if won := m.dialedTo(addrs); won != nil && (t.node == "" || won.node == t.node) {
		return won, false, nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, dialTimeout)
	defer cancel()
	c, err = m.reach(ctx, m.inTurn(t, addrs), t)
	if err == nil {
		return c, true, nil
	}
	var dup *duplicateError
	if errors.As(err, &dup) {
		if won := m.channelOf(dup.node); won != nil {
			return won, false, nil
		}
	}
	return nil, false, err
}

// dialedTo finds an open channel that was dialed to one of the addresses.
func (m *Manager) dialedTo(addrs []string) *channel {
	for _, c := range m.all() {
		for _, a := range addrs {
			if c.dialed && c.isUp() && c.tcp.RemoteAddr().String() == a {
				return c
			}
		}
	}
	return nil
}

// dialAny connects to the first address that answers, from an address of this node (nil: the routes choose one). Each
// attempt gets its share of the time that is left.
func dialAny(ctx context.Context, from *net.TCPAddr, addrs []string) (*net.TCPConn, error) {
	var errs []error
	for i, a := range addrs {
		d := net.Dialer{}
		if from != nil {
			d.LocalAddr = from
		}
		if until, ok := ctx.Deadline(); ok {
			d.Timeout = time.Until(until) / time.Duration(len(addrs)-i)
		}
		conn, err := d.DialContext(ctx, "tcp", a)
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
