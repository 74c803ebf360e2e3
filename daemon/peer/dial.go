package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// dialTimeout bounds one attempt: lookup, connect, handshake, hello.
const dialTimeout = 5 * time.Second

// dial is an attempt under way; later hints that lead to the same address join it.
type dial struct {
	hints []string
}

// backoff paces attempts to one address.
type backoff struct {
	wait    time.Duration
	until   time.Time
	problem string
}

const firstWait = 50 * time.Millisecond

// Dial makes sure that there is a channel to the peer that hint names: PeerUp or DialFailed follows. Attempts to an address that
// keeps failing are spread out with jitter, so a caller may ask again at once.
func (m *Manager) Dial(hint string) {
	if c := m.channelOf(hint); c != nil && c.announce(hint) {
		return
	}
	t, cause := m.resolve(hint)
	if cause != nil {
		m.cfg.Events(transfer.DialFailed{Hint: hint, Final: true, Cause: *cause})
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if d := m.dialing[t.addr]; d != nil {
		d.hints = append(d.hints, hint)
		return
	}
	d := &dial{hints: []string{hint}}
	m.dialing[t.addr] = d
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		m.attempt(m.ctx, d, t)
	}()
}

// attempt dials once, after the pause that earlier failures earned.
func (m *Manager) attempt(ctx context.Context, d *dial, t target) {
	m.rest(ctx, t.addr)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, final, err := m.connect(ctx, t)

	m.mu.Lock()
	delete(m.dialing, t.addr)
	hints := d.hints
	if err == nil {
		delete(m.pace, t.addr)
	} else {
		m.slower(t.addr, err)
	}
	m.mu.Unlock()
	if err != nil {
		cause := asCause(err, fmt.Sprintf("peer %s at %s: ", d.hints[0], t.addr))
		for _, h := range hints {
			m.cfg.Events(transfer.DialFailed{Hint: h, Final: final, Cause: cause})
		}
		return
	}
	for _, h := range hints {
		if !c.announce(h) && !m.announceOther(c, h) {
			m.cfg.Events(transfer.DialFailed{Hint: h, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("the channel to %q closed at once", c.node)}})
		}
	}
}

// announceOther is for a channel that was replaced at once, by the one that its node had opened at the same time.
func (m *Manager) announceOther(c *channel, hint string) bool {
	now := m.channelOf(c.node)
	return now != nil && now != c && now.announce(hint)
}

// connect opens a connection, says hello and, when both agree, runs the channel. A dial that the other side refuses because it
// dialed too ends with the channel that the other side opened.
func (m *Manager) connect(ctx context.Context, t target) (c *channel, final bool, err error) {
	addrs, cause := m.addresses(ctx, t)
	if cause != nil {
		return nil, cause.Reason != transfer.PeerGone, causeError(*cause)
	}
	conn, err := dialAny(ctx, addrs)
	if err != nil {
		return nil, false, fmt.Errorf("cannot connect: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err = m.greet(ctx, conn, t)
	if err == nil {
		return c, false, nil
	}
	_ = conn.Close()
	var fin *finalError
	if errors.As(err, &fin) {
		return nil, true, err
	}
	// Two that dial each other at once: the peer's own dial may have won, and closed this one.
	var dup *duplicateError
	errors.As(err, &dup)
	if won := m.channelOf(dup.nodeOr(t.node)); won != nil {
		return won, false, nil
	}
	return nil, false, err
}

func (m *Manager) channelOf(node string) *channel {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.channels[node]
}

func dialAny(ctx context.Context, addrs []string) (*net.TCPConn, error) {
	var d net.Dialer
	var errs []error
	for _, a := range addrs {
		conn, err := d.DialContext(ctx, "tcp", a)
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// rest waits until the address may be dialed again.
func (m *Manager) rest(ctx context.Context, addr string) {
	m.mu.Lock()
	p := m.pace[addr]
	var pause time.Duration
	if p != nil {
		pause = time.Until(p.until)
	}
	m.mu.Unlock()
	if pause <= 0 {
		return
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// slower notes a failure: the pause doubles up to DialMax, of which a random half to whole is waited. Called with mu held.
func (m *Manager) slower(addr string, err error) {
	p := m.pace[addr]
	if p == nil {
		p = &backoff{wait: firstWait}
		m.pace[addr] = p
	}
	p.problem = err.Error()
	p.until = time.Now().Add(jitter(p.wait))
	p.wait = min(2*p.wait, max(m.cfg.DialMax, firstWait))
	if len(m.pace) > 4096 { // hints are the clients' to choose
		for a := range m.pace {
			if m.dialing[a] == nil && a != addr {
				delete(m.pace, a)
				break
			}
		}
	}
}

// jitter spreads a pause over its second half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
