package peer

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// backoff paces the attempts at one address, or those of clients that name a forbidden one.
type backoff struct {
	wait    time.Duration
	until   time.Time
	problem string
	told    time.Time // when the log last told of it
	said    string    // what the log told then
	muted   string    // the one of several addresses after which the next attempt begins
}

const (
	firstWait = 50 * time.Millisecond
	// maxPaced bounds the addresses whose failures are remembered: clients choose hints freely.
	maxPaced = 4096
	// tellAgain is how long the log says nothing new about an address that keeps failing.
	tellAgain = time.Minute
)

// forbidden is the key in pace under which clients rest that name an address and are refused it. It says nothing of who
// is there: a node that is configured with that address is dialed all the same. No address that can be dialed ends so,
// whatever clients name.
func forbidden(addr string) string { return addr + notAllowed }

const notAllowed = " forbidden"

// mistaken is the key in pace under which a configured node rests at whose address another one answers, which is no
// fault of that one: it may be configured with this address, too.
func (t target) mistaken() string { return t.addr + isNot + t.node }

const isNot = " not "

// paces returns what holds up the attempts at a target. The caller holds mu.
func (m *Manager) paces(t target) (all []*backoff) {
	own := t.mistaken()
	if t.node == "" {
		own = forbidden(t.addr)
	}
	for _, k := range []string{t.addr, own} {
		if p := m.pace[k]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// rest waits until the target may be dialed again or the manager closes. moved: the configuration by now has another
// address for the node, or none.
func (m *Manager) rest(t target) (moved bool) {
	for {
		m.mu.Lock()
		var pause time.Duration
		for _, p := range m.paces(t) {
			pause = max(pause, time.Until(p.until))
		}
		moved = t.node != "" && m.nodes[t.node] != t.addr
		reloaded := m.reloaded
		m.mu.Unlock()
		if moved || pause <= 0 {
			return moved
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-reloaded:
		case <-m.ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// youth is the age below which a channel's end suggests that a new one would end at once, too.
const youth = time.Second

// outlived notes the end of a channel. If this side dialed it and it ended young, its address has failed. If it lasted,
// the earlier failures of the address are forgotten: the one dialed, or the configured one of a node that dialed this
// side. The caller holds mu.
func (m *Manager) outlived(c *channel, cause transfer.Cause) {
	switch age := time.Since(c.since); {
	case m.closed:
	case age >= m.cfg.young && c.dialed:
		m.answered(target{c.addr, c.node})
	case age >= m.cfg.young:
		m.answered(target{m.nodes[c.node], c.node})
	case c.dialed:
		m.slower(target{addr: c.addr, node: c.node}, errors.New(cause.Text))
	}
}

// answered forgets the failures of a node at an address, but not which of several addresses said nothing: that one would
// use up all the time again whenever an idle channel is reopened. The caller holds mu.
func (m *Manager) answered(t target) {
	p := m.pace[t.addr]
	delete(m.pace, t.addr)
	delete(m.pace, forbidden(t.addr))
	delete(m.pace, t.mistaken())
	if p != nil && p.muted != "" {
		m.pace[t.addr] = &backoff{wait: firstWait, muted: p.muted}
	}
}

// slower notes a failure. The pause doubles up to DialMax; the wait is a random half to whole of it. For a configured
// node it logs a failure that is new or another one; clients that named an address are told themselves. The caller
// holds mu.
func (m *Manager) slower(t target, err error) {
	addr, key, no, other := t.addr, t.addr, (*forbiddenError)(nil), (*otherError)(nil)
	switch {
	case t.node == "" && errors.As(err, &no):
		key = forbidden(addr)
	case t.node != "" && errors.As(err, &other):
		key = t.mistaken()
	default:
		delete(m.pace, t.mistaken())
	}
	p := m.pace[key]
	if p == nil {
		p = &backoff{wait: firstWait}
		m.pace[key] = p
	}
	if now := time.Now(); t.node != "" && p.said != err.Error() && now.Sub(p.told) >= tellAgain {
		p.told, p.said = now, err.Error()
		level, final := slog.LevelInfo, (*finalError)(nil)
		if errors.As(err, &final) { // somebody has to change something
			level = slog.LevelWarn
		}
		m.log.Log(m.ctx, level, "peer cannot be reached", "peer", t.node, "address", addr, "error", err)
	}
	p.problem = err.Error()
	if muted := (*mutedError)(nil); errors.As(err, &muted) {
		p.muted = muted.addr
	}
	p.until = time.Now().Add(jitter(p.wait))
	p.wait = min(2*p.wait, max(m.cfg.DialMax, firstWait))
	if len(m.pace) <= maxPaced {
		return
	}
	for k := range m.pace {
		if k != key && !m.isConfigured(k) {
			delete(m.pace, k)
			return
		}
	}
}

// isConfigured says whether a key in pace is that of a configured node. The caller holds mu.
func (m *Manager) isConfigured(key string) bool {
	if addr, node, mistaken := strings.Cut(key, isNot); mistaken && m.nodes[node] == addr {
		return true
	}
	for _, a := range m.nodes {
		if a == key {
			return true
		}
	}
	return false
}

// jitter returns a random time between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
